//! Labels on sandboxes and the selectors that pick sandboxes by them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a label was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// A key or value is empty or too long.
    #[error("the label {part} `{text}` has {length} characters: from {min} to {max} are taken")]
    Length {
        /// `key` or `value`.
        part: &'static str,
        /// The text, as given.
        text: String,
        /// Its length in bytes.
        length: usize,
        /// The fewest characters.
        min: usize,
        /// The most characters.
        max: usize,
    },
    /// A key or value has a character outside the allowed ones.
    #[error("the label {part} `{text}` has {found:?}: use letters, digits, `-`, `_`, `.` and `/`")]
    BadCharacter {
        /// `key` or `value`.
        part: &'static str,
        /// The text, as given.
        text: String,
        /// The offending character.
        found: char,
    },
    /// `key=value` was expected.
    #[error("`{text}` is not a label: write KEY=VALUE")]
    NotAPair {
        /// The text, as given.
        text: String,
    },
    /// More labels than a sandbox may carry.
    #[error("{count} labels, and {max} is the most that a sandbox carries")]
    TooMany {
        /// How many there were.
        count: usize,
        /// The limit.
        max: usize,
    },
}

/// The labels of a sandbox: at most 32 pairs, keys of 1 to 63 and values of 0 to 63 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(
    try_from = "BTreeMap<String, String>",
    into = "BTreeMap<String, String>"
)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// The most labels that one sandbox carries.
    pub const MAX: usize = 32;

    /// Checks each pair and takes them.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, LabelError> {
        let mut map = BTreeMap::new();
        for (key, value) in pairs {
            check_part("key", 1, &key)?;
            check_part("value", 0, &value)?;
            map.insert(key, value);
        }
        if map.len() > Self::MAX {
            return Err(LabelError::TooMany {
                count: map.len(),
                max: Self::MAX,
            });
        }
        Ok(Self(map))
    }

    /// Splits `KEY=VALUE`, as the command line gives it.
    pub fn parse_pair(text: &str) -> Result<(String, String), LabelError> {
        let (key, value) = text.split_once('=').ok_or_else(|| LabelError::NotAPair {
            text: text.to_owned(),
        })?;
        check_part("key", 1, key)?;
        check_part("value", 0, value)?;
        Ok((key.to_owned(), value.to_owned()))
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The pairs, in order of key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = LabelError;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self, LabelError> {
        Self::new(map)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

/// Which sandboxes of a tenant something applies to. Absent and empty are two
/// different things, and stay so.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// No selector was written: it selects nothing.
    #[default]
    Nothing,
    /// Every pair must be on the sandbox; with no pairs every sandbox of the tenant is selected.
    Matching(Labels),
}

impl Selector {
    /// Whether a sandbox that carries `labels` is selected.
    pub fn selects(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::Matching(wanted) => wanted
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value)),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Matching(labels) if labels.is_empty() => f.write_str("every sandbox"),
            Self::Matching(labels) => {
                for (index, (key, value)) in labels.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{key}={value}")?;
                }
                Ok(())
            }
        }
    }
}

fn check_part(part: &'static str, min: usize, text: &str) -> Result<(), LabelError> {
    const MAX: usize = 63;
    if text.len() < min || text.len() > MAX {
        let cut = text.chars().take(MAX).collect();
        return Err(LabelError::Length {
            part,
            text: cut,
            length: text.len(),
            min,
            max: MAX,
        });
    }
    let bad = text
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !"-_./".contains(*c));
    match bad {
        None => Ok(()),
        Some(found) => Err(LabelError::BadCharacter {
            part,
            text: text.to_owned(),
            found,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::new(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
        .unwrap()
    }

    #[test]
    fn absent_selects_nothing_and_empty_selects_all() {
        let agent = labels(&[("role", "agent")]);
        assert!(!Selector::Nothing.selects(&agent));
        assert!(Selector::Matching(Labels::default()).selects(&agent));
        assert!(Selector::Matching(agent.clone()).selects(&agent));
        assert!(!Selector::Matching(agent).selects(&labels(&[("role", "api")])));
    }

    #[test]
    fn bad_labels_are_named() {
        assert!(Labels::parse_pair("role=agent").is_ok());
        assert_eq!(
            Labels::parse_pair("role").unwrap_err().to_string(),
            "`role` is not a label: write KEY=VALUE"
        );
        assert!(Labels::parse_pair("=x").is_err());
        assert!(Labels::parse_pair("a b=x").is_err());
    }
}
