//! Globs of paths.

use std::fmt;

use super::{CanonicalPath, PathError, before_parameters, normalise_segment, serialize_display};

/// Why text is not a path glob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathGlobError {
    /// `**` with something else in its segment.
    #[error("`**` stands for whole segments and is alone in its segment")]
    PartialDoubleStar,
    /// More than eight `**`, or more than eight `*` in one segment.
    #[error("a path glob has at most 8 `**`, and at most 8 `*` in a segment")]
    TooManyWildcards,
    /// A query or a fragment, which rules do not see.
    #[error("rules match the path only, without query or fragment")]
    Query,
    /// No path could ever match, since such paths are refused.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A glob of canonical paths: `*` is any run of characters within a segment, and as a whole
/// segment at least one; `**` is one or more whole segments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathGlob(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Segment {
    /// `**`.
    Many,
    /// Literal pieces with any characters between each two.
    One(Vec<String>),
}

impl PathGlob {
    const MAX_WILDCARDS: usize = 8;

    /// Reads a glob and brings its literal parts into canonical form.
    pub fn parse(text: &str) -> Result<Self, PathGlobError> {
        if text.contains(['?', '#']) {
            return Err(PathGlobError::Query);
        }
        if text.len() > CanonicalPath::MAX {
            return Err(PathError::TooLong.into());
        }
        let rest = text.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        let mut segments = Vec::new();
        for segment in rest.split('/') {
            if segments.last() == Some(&Segment::One(vec![String::new()])) {
                return Err(PathError::EmptySegment.into());
            }
            segments.push(Segment::parse(segment)?);
        }
        let many = segments.iter().filter(|s| **s == Segment::Many).count();
        if many > Self::MAX_WILDCARDS {
            return Err(PathGlobError::TooManyWildcards);
        }
        Ok(Self(segments))
    }

    /// Whether the glob matches the path.
    pub fn matches(&self, path: &CanonicalPath) -> bool {
        let segments: Vec<&str> = path.segments().collect();
        matches_from(&self.0, &segments)
    }

    /// Whether the glob matches the path as a server reads it that drops parameters (`;x`) from
    /// segments, before or after it takes escapes out. A rule that denies asks for both.
    pub fn matches_without_parameters(&self, path: &CanonicalPath) -> bool {
        let bare: fn(&str) -> &str = |s| before_parameters(s.split(';').next().unwrap_or(s));
        let segments: Vec<&str> = path.segments().map(bare).collect();
        matches_from(&self.0, &segments)
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PathGlobError> {
        if text == "**" {
            return Ok(Self::Many);
        }
        if text.contains("**") {
            return Err(PathGlobError::PartialDoubleStar);
        }
        let mut whole = String::new();
        normalise_segment(text, &mut whole)?;
        // An escaped star is the character itself: it stays escaped in canonical form.
        let pieces: Vec<String> = whole.split('*').map(str::to_owned).collect();
        if pieces.len() > PathGlob::MAX_WILDCARDS + 1 {
            return Err(PathGlobError::TooManyWildcards);
        }
        Ok(Self::One(pieces))
    }

    fn matches(&self, segment: &str) -> bool {
        match self {
            Self::Many => true,
            Self::One(pieces) => pieces_match(pieces, segment),
        }
    }
}

/// Matches literal pieces in order, the first at the start and the last at the end.
/// Taking each inner piece at its first place is enough, since a star spans anything.
fn pieces_match(pieces: &[String], segment: &str) -> bool {
    match pieces {
        [] => false,
        [only] => only == segment,
        [first, inner @ .., last] => {
            let Some(rest) = segment.strip_prefix(first.as_str()) else {
                return false;
            };
            let Some(mut rest) = rest.strip_suffix(last.as_str()) else {
                return false;
            };
            for piece in inner {
                match rest.split_once(piece.as_str()) {
                    Some((_, after)) => rest = after,
                    None => return false,
                }
            }
            !segment.is_empty()
        }
    }
}

/// Matches segments with `**` as one or more. The latest `**` alone is ever retried,
/// which makes the cost the product of the two lengths at most.
fn matches_from(glob: &[Segment], path: &[&str]) -> bool {
    let (mut g, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while p < path.len() {
        match (glob.get(g), path.get(p)) {
            (Some(Segment::Many), _) => {
                retry = Some((g + 1, p + 1));
                (g, p) = (g + 1, p + 1);
            }
            (Some(one), Some(segment)) if one.matches(segment) => (g, p) = (g + 1, p + 1),
            _ => match retry {
                Some((after, taken)) => {
                    retry = Some((after, taken + 1));
                    (g, p) = (after, taken + 1);
                }
                None => return false,
            },
        }
    }
    g == glob.len()
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.0 {
            match segment {
                Segment::Many => f.write_str("/**")?,
                Segment::One(pieces) => write!(f, "/{}", pieces.join("*"))?,
            }
        }
        Ok(())
    }
}

serialize_display!(PathGlob);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(text: &str) -> PathGlob {
        PathGlob::parse(text).unwrap()
    }

    fn path(text: &str) -> CanonicalPath {
        CanonicalPath::parse(text).unwrap()
    }

    #[test]
    fn globs_match_what_they_say() {
        for (text, yes, no) in [
            ("/", &["/"][..], &["/a"][..]),
            ("/**", &["/", "/a", "/a/", "/a/b/c"], &[]),
            (
                "/repos/**",
                &["/repos/", "/repos/a", "/repos/a/b"],
                &["/repos", "/reposx/a", "/x/repos/a"],
            ),
            (
                "/repos/*",
                &["/repos/a"],
                &["/repos/", "/repos", "/repos/a/b", "/repos/a/"],
            ),
            ("/a/**/z", &["/a/b/z", "/a/b/z/z"], &["/a/z", "/a/b/z/"]),
            ("/v*/x", &["/v/x", "/v1/x"], &["/x", "/w/x", "/v/1/x"]),
            (
                "/a*b*c",
                &["/abc", "/a-b-c", "/abbcc"],
                &["/ac", "/acb", "/ab"],
            ),
            ("/aa*aa", &["/aaaa"], &["/aaa"]),
            (
                "/projects",
                &["/projects", "/%70rojects"],
                &["/Projects", "/projects/"],
            ),
            ("/%70*", &["/projects"], &["/x"]),
            ("/%2A", &["/%2a"], &["/a", "/*"]),
            ("/**/**", &["/a/b", "/a/"], &["/a"]),
        ] {
            for candidate in yes {
                assert!(
                    glob(text).matches(&path(candidate)),
                    "{text} on {candidate}"
                );
            }
            for candidate in no {
                assert!(
                    !glob(text).matches(&path(candidate)),
                    "{text} on {candidate}"
                );
            }
        }
    }

    #[test]
    fn parameters_can_be_left_out() {
        let admin = glob("/admin/**");
        assert!(!admin.matches(&path("/admin;x/secret")));
        assert!(admin.matches_without_parameters(&path("/admin;x/secret")));
        assert!(admin.matches_without_parameters(&path("/admin%3bx/secret")));
        assert!(!admin.matches_without_parameters(&path("/adminx/secret")));
    }

    #[test]
    fn what_is_no_glob_is_refused() {
        for (text, error) in [
            ("", PathError::NotAbsolute.into()),
            ("repos/**", PathError::NotAbsolute.into()),
            ("/a//b", PathError::EmptySegment.into()),
            ("/a/../b", PathError::DotSegment.into()),
            ("/a?x=1", PathGlobError::Query),
            ("/a**", PathGlobError::PartialDoubleStar),
            ("/***", PathGlobError::PartialDoubleStar),
            ("/a b", PathError::BadByte { byte: b' ' }.into()),
            ("/*a*a*a*a*a*a*a*a*a", PathGlobError::TooManyWildcards),
            (
                "/**/**/**/**/**/**/**/**/**",
                PathGlobError::TooManyWildcards,
            ),
        ] {
            assert_eq!(PathGlob::parse(text), Err(error), "{text}");
        }
    }

    /// The meaning, written as plainly as it can be.
    fn reference(glob: &[Segment], path: &[&str]) -> bool {
        match (glob, path) {
            ([], []) => true,
            ([Segment::Many, rest @ ..], [_, tail @ ..]) => {
                reference(rest, tail) || reference(glob, tail)
            }
            ([one, rest @ ..], [segment, tail @ ..]) => {
                one.matches(segment) && reference(rest, tail)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn the_loop_agrees_with_the_meaning(
            text in "(/(a|b|\\*|\\*\\*)){1,6}",
            candidate in "(/(a|b)){0,6}/(a|b)?",
        ) {
            if let (Ok(glob), Ok(path)) = (PathGlob::parse(&text), CanonicalPath::parse(&candidate)) {
                let segments: Vec<&str> = path.segments().collect();
                prop_assert_eq!(glob.matches(&path), reference(&glob.0, &segments));
            }
        }
    }
}
