//! Names that people choose: tenants, sandboxes, networks, policies, secrets.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has no characters.
    #[error("a {kind} name is empty")]
    Empty {
        /// What was being named.
        kind: &'static str,
    },
    /// The name is longer than the limit.
    #[error("the {kind} name `{name}` has {length} characters, and {max} is the most")]
    TooLong {
        /// What was being named.
        kind: &'static str,
        /// The name as it was given, cut to the limit.
        name: String,
        /// Its length in bytes.
        length: usize,
        /// The longest that is taken, in bytes.
        max: usize,
    },
    /// The name has a character that is not allowed, or one in a place where it is not.
    #[error("the {kind} name `{name}` has {found:?} at character {position}: use {allowed}")]
    BadCharacter {
        /// What was being named.
        kind: &'static str,
        /// The name as it was given.
        name: String,
        /// The offending character.
        found: char,
        /// Its position, counted from 1.
        position: usize,
        /// What is allowed, in words.
        allowed: &'static str,
    },
}

/// A DNS label as RFC 1123 has it, in lower case: these names appear in
/// `<sandbox>.<network>.internal`, in file paths and in metrics.
fn check_label(kind: &'static str, max: usize, name: &str) -> Result<(), NameError> {
    const ALLOWED: &str = "lower-case letters, digits and inner hyphens";
    check_length(kind, max, name)?;
    let last = name.chars().count() - 1;
    for (index, found) in name.chars().enumerate() {
        let inner = index != 0 && index != last;
        let good = found.is_ascii_lowercase() || found.is_ascii_digit() || (found == '-' && inner);
        if !good {
            return Err(bad_character(kind, name, found, index, ALLOWED));
        }
    }
    Ok(())
}

/// A name for an environment variable or file: secrets are known by these.
fn check_identifier(kind: &'static str, max: usize, name: &str) -> Result<(), NameError> {
    const ALLOWED: &str = "letters, digits, `_`, `-` and `.`, a letter or `_` first";
    check_length(kind, max, name)?;
    for (index, found) in name.chars().enumerate() {
        let start = found.is_ascii_alphabetic() || found == '_';
        let good = start || (index > 0 && (found.is_ascii_digit() || found == '-' || found == '.'));
        if !good {
            return Err(bad_character(kind, name, found, index, ALLOWED));
        }
    }
    Ok(())
}

fn check_length(kind: &'static str, max: usize, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if name.len() > max {
        let cut = name.chars().take(max).collect();
        return Err(NameError::TooLong {
            kind,
            name: cut,
            length: name.len(),
            max,
        });
    }
    Ok(())
}

fn bad_character(
    kind: &'static str,
    name: &str,
    found: char,
    index: usize,
    allowed: &'static str,
) -> NameError {
    NameError::BadCharacter {
        kind,
        name: name.to_owned(),
        found,
        position: index + 1,
        allowed,
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The longest name, in bytes.
            pub const MAX: usize = $max;

            /// Checks `name` and takes it.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                $check($kind, Self::MAX, &name)?;
                Ok(Self(name))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name_type!(
    /// A tenant: the owner of sandboxes, networks, policies and secrets.
    TenantName, "tenant", check_label, 63
);
name_type!(
    /// A sandbox, unique within its tenant.
    SandboxName, "sandbox", check_label, 63
);
name_type!(
    /// A private network, unique within its tenant.
    NetworkName, "network", check_label, 63
);
name_type!(
    /// A policy or guardrail, unique within its tenant.
    PolicyName, "policy", check_label, 63
);
name_type!(
    /// A secret, unique within its tenant.
    SecretName, "secret", check_identifier, 128
);

macro_rules! tenant_scoped {
    ($(#[$doc:meta])* $type:ident, $name:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $type {
            /// The tenant that owns it.
            pub tenant: TenantName,
            /// Its name within the tenant.
            pub name: $name,
        }

        impl $type {
            /// Puts the two parts together.
            pub fn new(tenant: TenantName, name: $name) -> Self {
                Self { tenant, name }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.tenant, self.name)
            }
        }
    };
}

tenant_scoped!(
    /// A sandbox's full name, shown as `tenant/name`.
    SandboxId, SandboxName
);
tenant_scoped!(
    /// A private network's full name, shown as `tenant/name`.
    NetworkId, NetworkName
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_lower_case_dns_labels() {
        for good in ["a", "a-b", "0x1", &"a".repeat(63)] {
            assert!(TenantName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", &"a".repeat(64)] {
            assert!(TenantName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_look_like_environment_variables() {
        for good in ["GITHUB_TOKEN", "_x", "npm.token-2"] {
            assert!(SecretName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1X", "A B", "A=B", "../x"] {
            assert!(SecretName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_says_what_and_where() {
        let error = SandboxName::new("web_1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the sandbox name `web_1` has '_' at character 4: \
             use lower-case letters, digits and inner hyphens"
        );
    }

    #[test]
    fn serde_goes_through_the_check() {
        assert!(serde_json::from_str::<TenantName>("\"acme\"").is_ok());
        assert!(serde_json::from_str::<TenantName>("\"Acme\"").is_err());
    }
}
