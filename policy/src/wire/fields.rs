//! Reading mappings, lists and scalars with their places.

use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;

use crate::problems::{Problems, closest};
use crate::yaml::{Node, Value};

/// The entries of a mapping whose keys are fixed.
#[derive(Debug)]
pub(crate) struct Fields<'n> {
    /// The place of the mapping, for what is missing.
    pub(crate) span: Range<usize>,
    entries: Vec<(&'n str, &'n Node, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Takes `node` apart. Reports keys that are not in `known`, keys given twice, and keys without
    /// a value.
    pub(crate) fn read(
        node: &'n Node,
        what: &str,
        known: &[&str],
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let mut entries = Vec::new();
        for (key, key_node, value) in pairs(node, what, problems)? {
            if known.contains(&key) {
                reject_null(key, value, problems);
                entries.push((key, key_node, value));
            } else {
                let help = match closest(key, known) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("the keys are: {}", known.join(", ")),
                };
                let message = format!("{what} has no key `{}`", clip(key));
                problems.error_with(key_node.span.clone(), message, help);
            }
        }
        Some(Self {
            span: first_line(node),
            entries,
        })
    }

    /// The value of a key, if it was given and has one.
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        let (_, _, value) = self.entries.iter().find(|(name, ..)| *name == key)?;
        (!matches!(value.value, Value::Null)).then_some(*value)
    }

    /// The place of a key, whatever its value.
    pub(crate) fn key(&self, key: &str) -> Option<Range<usize>> {
        let (_, node, _) = self.entries.iter().find(|(name, ..)| *name == key)?;
        Some(node.span.clone())
    }

    /// The value of a key that has to be there.
    pub(crate) fn require(
        &self,
        key: &str,
        what: &str,
        help: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<&'n Node> {
        if self.key(key).is_none() {
            problems.error(self.span.clone(), format!("{what} needs `{key}`"), help);
        }
        self.get(key)
    }
}

/// The entries of a mapping whose keys are free, each key once.
pub(crate) fn pairs<'n>(
    node: &'n Node,
    what: &str,
    problems: &mut Problems<'_>,
) -> Option<Vec<(&'n str, &'n Node, &'n Node)>> {
    let Value::Map(entries) = &node.value else {
        wrong_type(node, what, "a mapping of keys to values", problems);
        return None;
    };
    let mut seen = HashSet::new();
    let mut found = Vec::with_capacity(entries.len());
    for (key_node, value) in entries {
        let key = match &key_node.value {
            Value::Scalar(key) => key.as_str(),
            Value::Null => "",
            Value::Bad => continue,
            Value::List(_) | Value::Map(_) => {
                let message = "a key has to be a word";
                problems.error(key_node.span.clone(), message, None);
                continue;
            }
        };
        if seen.insert(key) {
            found.push((key, key_node, value));
        } else {
            let message = format!("the key `{}` is given twice", clip(key));
            problems.error(key_node.span.clone(), message, "remove one of them");
        }
    }
    Some(found)
}

/// The entries of a list that has from one to `max` of them.
pub(crate) fn list<'n>(
    node: &'n Node,
    what: &str,
    max: usize,
    problems: &mut Problems<'_>,
) -> Option<&'n [Node]> {
    let entries = maybe_empty(node, what, max, problems)?;
    if entries.is_empty() {
        let message = format!("{what} is an empty list, which never means everything");
        problems.error(node.span.clone(), message, "list what is meant");
        return None;
    }
    Some(entries)
}

/// The entries of a list that has at most `max` of them.
pub(crate) fn maybe_empty<'n>(
    node: &'n Node,
    what: &str,
    max: usize,
    problems: &mut Problems<'_>,
) -> Option<&'n [Node]> {
    match &node.value {
        Value::List(entries) if entries.len() <= max => Some(entries),
        Value::List(entries) => {
            let count = entries.len();
            let message = format!("{what} has {count} entries, and {max} is the most");
            problems.error(first_line(node), message, None);
            None
        }
        _ => {
            wrong_type(node, what, "a list, such as `[a, b]`", problems);
            None
        }
    }
}

/// The text of a scalar.
pub(crate) fn text<'n>(node: &'n Node, what: &str, problems: &mut Problems<'_>) -> Option<&'n str> {
    if let Value::Scalar(text) = &node.value {
        return Some(text);
    }
    wrong_type(node, what, "a single value", problems);
    None
}

/// Reads a scalar with a function that may refuse it.
pub(crate) fn parsed<'n, T, E: Display>(
    node: &'n Node,
    what: &str,
    parse: impl FnOnce(&'n str) -> Result<T, E>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    match parse(text(node, what, problems)?) {
        Ok(value) => Some(value),
        Err(error) => {
            problems.error(node.span.clone(), error.to_string(), None);
            None
        }
    }
}

/// One of a few words.
pub(crate) fn word<T: Copy>(
    node: &Node,
    what: &str,
    words: &[(&str, T)],
    problems: &mut Problems<'_>,
) -> Option<T> {
    let given = text(node, what, problems)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == given) {
        return Some(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let help = match closest(given, &known) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("write one of: {}", known.join(", ")),
    };
    let message = format!("`{}` is no value of {what}", clip(given));
    problems.error_with(node.span.clone(), message, help);
    None
}

fn reject_null(key: &str, value: &Node, problems: &mut Problems<'_>) {
    if matches!(value.value, Value::Null) {
        let help = "give it a value or remove the key: a key without a value could be read as \
                    nothing or as everything";
        let message = format!("`{key}` has no value");
        problems.error(value.span.clone(), message, help);
    }
}

fn wrong_type(node: &Node, what: &str, expected: &str, problems: &mut Problems<'_>) {
    let found = match node.value {
        Value::Bad => return,
        Value::Null => "nothing",
        Value::Scalar(_) => "a single value",
        Value::List(_) => "a list",
        Value::Map(_) => "a mapping",
    };
    let message = format!("{what} is {found}, and {expected} is expected");
    problems.error(first_line(node), message, None);
}

/// A place for what concerns a whole node: block collections reach over many lines.
fn first_line(node: &Node) -> Range<usize> {
    match &node.value {
        Value::Map(entries) => match entries.first() {
            Some((key, _)) => node.span.start.min(key.span.start)..key.span.end,
            None => node.span.clone(),
        },
        Value::List(entries) => match entries.first() {
            Some(first) => node.span.start..first_line(first).start.max(node.span.start + 1),
            None => node.span.clone(),
        },
        _ => node.span.clone(),
    }
}

/// Text from a file as part of a message: short, and without control characters.
pub(crate) fn clip(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    cut.escape_debug().to_string()
}
