//! YAML as a tree in which every key and value knows its place.
//!
//! What policy files do not need is refused, because each of these has been used to make a file
//! say something else than a reader sees, or to make a parser work without end: anchors and
//! aliases, tags, directives, keys that are not scalars.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, options};

use crate::bounds;
use crate::problems::Problems;

/// A node with the bytes that it covers.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    /// A plain scalar that is empty, `~` or `null`.
    Null,
    /// Any other scalar. Types come from the schema: `no` is text where text is expected.
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// Something that was already reported.
    Bad,
}

/// One document: its root, and the bytes from its beginning to that of the next one.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Node,
    pub(crate) span: Range<usize>,
}

/// Reads all documents, and reports what is wrong with each.
pub(crate) fn read(text: &str, problems: &mut Problems<'_>) -> Vec<Tree> {
    let options = options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: bounds::DEPTH,
        block_nesting_limit: bounds::DEPTH,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder {
        problems,
        trees: Vec::new(),
        open: Vec::new(),
        nodes: 0,
        begin: 0,
    };
    builder.run(&mut parser);
    let mut trees = builder.trees;
    let mut end = text.len();
    for tree in trees.iter_mut().rev() {
        tree.span.end = end;
        end = tree.span.start;
    }
    trees
}

struct Builder<'p, 'a> {
    problems: &'p mut Problems<'a>,
    trees: Vec<Tree>,
    open: Vec<Open>,
    nodes: usize,
    begin: usize,
}

/// A list or mapping that is not closed yet.
struct Open {
    begin: usize,
    children: Vec<Node>,
    is_map: bool,
}

impl Builder<'_, '_> {
    fn run<'t>(&mut self, parser: &mut Parser<'t, StrInput<'t>>) {
        while let Some(next) = parser.next_event() {
            match next {
                Ok((event, span)) => {
                    if !self.take(&event, &span) {
                        return;
                    }
                }
                Err(error) => {
                    self.syntax(&error);
                    self.open.clear();
                    // The rest of a broken document is skipped; later ones are still read.
                    if !matches!(parser.proceed_next_document(), Ok(true)) {
                        return;
                    }
                }
            }
        }
    }

    /// Takes one event; false when a bound was crossed and reading ends.
    fn take(&mut self, event: &Event<'_>, span: &Span) -> bool {
        let range = span.byte_range().unwrap_or_default();
        if event.is_node() {
            self.nodes += 1;
            if self.nodes > bounds::NODES {
                let message = format!("the file has more than {} values", bounds::NODES);
                self.problems
                    .error(range, message, "split it into several files");
                return false;
            }
            self.refuse_properties(event, span);
        }
        match event {
            Event::DocumentStart(..) => {
                let first = self.trees.is_empty();
                self.begin = if first { 0 } else { range.start };
                if self.trees.len() >= bounds::DOCUMENTS {
                    let message = format!("more than {} documents in one file", bounds::DOCUMENTS);
                    self.problems
                        .error(range, message, "split it into several files");
                    return false;
                }
            }
            Event::Scalar(text, style, ..) => {
                let null = *style == ScalarStyle::Plain
                    && matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL");
                let value = if null {
                    Value::Null
                } else {
                    Value::Scalar(text.clone().into_owned())
                };
                self.put(range, value);
            }
            Event::SequenceStart(..) => self.begin_collection(range.start, false),
            Event::MappingStart(..) => self.begin_collection(range.start, true),
            Event::SequenceEnd | Event::MappingEnd => self.end_collection(range.end),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let help = "write the value out where it is needed";
                self.problems
                    .error(range.clone(), "aliases are not taken", help);
                self.put(range, Value::Bad);
            }
            _ => {}
        }
        true
    }

    fn refuse_properties(&mut self, event: &Event<'_>, span: &Span) {
        if event.anchor_id().is_some_and(|id| id != 0) {
            let range = span.byte_range().unwrap_or_default();
            let help = "remove `&name`, and write the value out where it is needed";
            self.problems.error(range, "anchors are not taken", help);
        }
        if event.tag().is_some() {
            let tag = span.tag_span().and_then(|tag| tag.byte_range());
            let range = tag.or_else(|| span.byte_range()).unwrap_or_default();
            self.problems
                .error(range, "tags are not taken", "remove it");
        }
    }

    fn begin_collection(&mut self, begin: usize, is_map: bool) {
        self.open.push(Open {
            begin,
            children: Vec::new(),
            is_map,
        });
    }

    fn end_collection(&mut self, end: usize) {
        let Some(open) = self.open.pop() else { return };
        let span = open.begin..end.max(open.begin);
        let value = if open.is_map {
            let mut children = open.children.into_iter();
            let mut pairs = Vec::with_capacity(children.len() / 2);
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                pairs.push((key, value));
            }
            Value::Map(pairs)
        } else {
            Value::List(open.children)
        };
        self.put(span, value);
    }

    fn put(&mut self, span: Range<usize>, value: Value) {
        let node = Node { span, value };
        match self.open.last_mut() {
            Some(open) => open.children.push(node),
            None => self.trees.push(Tree {
                root: node,
                span: self.begin..self.begin,
            }),
        }
    }

    fn syntax(&mut self, error: &ScanError) {
        let at = error.marker().byte_offset().unwrap_or_default();
        let help = "check the indentation, quotes and brackets here and on the line before";
        self.problems
            .error(at..at, format!("not YAML: {}", error.kind()), help);
    }
}
