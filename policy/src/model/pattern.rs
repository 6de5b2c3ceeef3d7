//! Patterns of host names.

use std::fmt;

use causeway_types::{DomainName, DomainNameError};

use super::serialize_display;

/// Why text is not a name pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A lone `*`: a name of one label, which is hardly ever meant.
    #[error("`*` alone would match names of one label only")]
    LoneStar,
    /// A `*` that is not the whole first label.
    #[error("a wildcard stands for whole labels and only at the front")]
    MisplacedWildcard,
    /// An address where a name is expected.
    #[error("an address is not a name")]
    Address,
    /// A URL, or a name with a port.
    #[error("only a host name is expected, without scheme, port or path")]
    NotOnlyAName,
    /// The name below the wildcard, or the whole name, is not a host name.
    #[error(transparent)]
    Name(#[from] DomainNameError),
}

/// A pattern of host names. The name below a wildcard is never itself matched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamePattern {
    /// This name and no other.
    Exact(DomainName),
    /// `*.name`: exactly one label below the name.
    OneBelow(DomainName),
    /// `**.name`: one or more labels below the name.
    AnyBelow(DomainName),
    /// `**`: every name.
    Any,
}

impl NamePattern {
    /// Reads a pattern and brings its name into canonical form.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        match text {
            "*" => return Err(PatternError::LoneStar),
            "**" => return Ok(Self::Any),
            _ => {}
        }
        let (rest, make): (&str, fn(DomainName) -> Self) =
            match (text.strip_prefix("**."), text.strip_prefix("*.")) {
                (Some(rest), _) => (rest, Self::AnyBelow),
                (None, Some(rest)) => (rest, Self::OneBelow),
                (None, None) => (text, Self::Exact),
            };
        if rest.contains('*') {
            return Err(PatternError::MisplacedWildcard);
        }
        if is_address(rest) {
            return Err(PatternError::Address);
        }
        if rest.contains(['/', ':', '@']) {
            return Err(PatternError::NotOnlyAName);
        }
        Ok(make(DomainName::parse(rest)?))
    }

    /// Whether the pattern matches `name`.
    pub fn matches(&self, name: &DomainName) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == name,
            Self::OneBelow(base) => {
                labels_above(name, base).is_some_and(|above| !above.contains('.'))
            }
            Self::AnyBelow(base) => labels_above(name, base).is_some(),
        }
    }

    /// Whether some name matches both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        use NamePattern::{Any, AnyBelow, Exact, OneBelow};
        match (self, other) {
            (Any, _) | (_, Any) => true,
            (Exact(name), pattern) | (pattern, Exact(name)) => pattern.matches(name),
            (OneBelow(a), OneBelow(b)) => a == b,
            (OneBelow(one), AnyBelow(any)) | (AnyBelow(any), OneBelow(one)) => {
                one == any || labels_above(one, any).is_some()
            }
            (AnyBelow(a), AnyBelow(b)) => {
                a == b || labels_above(a, b).is_some() || labels_above(b, a).is_some()
            }
        }
    }

    /// Whether more than one name can match.
    pub const fn is_wildcard(&self) -> bool {
        !matches!(self, Self::Exact(_))
    }

    /// The labels that are written out; none for `**`.
    pub fn literal_labels(&self) -> usize {
        match self {
            Self::Any => 0,
            Self::Exact(name) | Self::OneBelow(name) | Self::AnyBelow(name) => {
                name.labels_from_root().count()
            }
        }
    }
}

/// What stands to the left of `.base` in `name`.
fn labels_above<'a>(name: &'a DomainName, base: &DomainName) -> Option<&'a str> {
    let above = name.as_str().strip_suffix(base.as_str())?;
    above.strip_suffix('.')
}

fn is_address(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let network = bare.split_once('/').map_or(bare, |(address, _)| address);
    network.parse::<std::net::IpAddr>().is_ok()
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("**"),
            Self::Exact(name) => name.fmt(f),
            Self::OneBelow(base) => write!(f, "*.{base}"),
            Self::AnyBelow(base) => write!(f, "**.{base}"),
        }
    }
}

serialize_display!(NamePattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::parse(text).unwrap()
    }

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    #[test]
    fn each_form_matches_what_it_says() {
        let names = ["x.test", "a.x.test", "a.b.x.test", "ax.test", "x.test.evil"];
        for (text, expected) in [
            ("x.test", [true, false, false, false, false]),
            ("*.x.test", [false, true, false, false, false]),
            ("**.x.test", [false, true, true, false, false]),
            ("**", [true; 5]),
            ("*.test", [true, false, false, true, false]),
        ] {
            for (candidate, expected) in names.iter().zip(expected) {
                let matched = pattern(text).matches(&name(candidate));
                assert_eq!(matched, expected, "{text} on {candidate}");
            }
        }
    }

    #[test]
    fn every_spelling_of_a_name_is_one_pattern() {
        assert_eq!(
            pattern("*.BÜCHER.example."),
            pattern("*.xn--bcher-kva.example")
        );
        assert_eq!(pattern("ａpi。example"), pattern("api.example"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, error) in [
            ("*", PatternError::LoneStar),
            ("a.*.b", PatternError::MisplacedWildcard),
            ("a*.b", PatternError::MisplacedWildcard),
            ("*a.b", PatternError::MisplacedWildcard),
            ("***.b", PatternError::MisplacedWildcard),
            ("*.*.b", PatternError::MisplacedWildcard),
            ("**.*.b", PatternError::MisplacedWildcard),
            ("10.0.0.1", PatternError::Address),
            ("10.0.0.0/8", PatternError::Address),
            ("[2001:db8::1]", PatternError::Address),
            ("https://a.b", PatternError::NotOnlyAName),
            ("a.b:443", PatternError::NotOnlyAName),
            ("u@a.b", PatternError::NotOnlyAName),
        ] {
            assert_eq!(NamePattern::parse(text), Err(error), "{text}");
        }
        for text in [
            "",
            ".",
            "*.",
            "**.",
            "a..b",
            ".a.b",
            "2130706433",
            "0x7f.1",
            "a\0.b",
            ",",
        ] {
            let result = NamePattern::parse(text);
            assert!(matches!(result, Err(PatternError::Name(_))), "{text:?}");
        }
    }

    #[test]
    fn overlap_agrees_with_matching() {
        let patterns = [
            "x.t", "a.x.t", "*.t", "*.x.t", "**.t", "**.x.t", "**", "*.y.t",
        ];
        let names = ["x.t", "a.x.t", "b.a.x.t", "y.t", "a.y.t", "t.u", "q.q.y.t"];
        for a in patterns.map(pattern) {
            for b in patterns.map(pattern) {
                let shared = names
                    .iter()
                    .any(|n| a.matches(&name(n)) && b.matches(&name(n)));
                assert_eq!(a.overlaps(&b), shared, "{a} and {b}");
            }
        }
    }
}
