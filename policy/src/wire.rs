//! The wire form: from the tree of a file to the validated model.
//!
//! Nothing stops at the first problem. Each reader reports what it finds and gives back what
//! it could make of its node; a file with any error is refused as a whole.

mod document;
mod egress;
pub(crate) mod fields;
mod ingress;
mod secret;
pub(crate) mod values;

use std::collections::BTreeSet;

use crate::bounds;
use crate::error::{PolicyErrors, Report};
use crate::problems::Problems;
use crate::yaml::{self, Value};

/// Reads every document of a file.
pub(crate) fn read(source_name: &str, text: &str) -> Report {
    let mut problems = Problems::new(if text.len() > bounds::FILE { "" } else { text });
    let mut documents = Vec::new();
    if text.len() > bounds::FILE {
        let message = format!(
            "the file has {} bytes, and {} is the most",
            text.len(),
            bounds::FILE
        );
        problems.error(0..0, message, "split it into several files");
    } else {
        read_documents(text, &mut problems, &mut documents);
    }
    let problems = PolicyErrors {
        source_name: source_name.to_owned(),
        text: text.into(),
        problems: problems.into_sorted(),
    };
    if problems.has_errors() {
        documents.clear();
    }
    Report {
        documents,
        problems,
    }
}

fn read_documents(
    text: &str,
    problems: &mut Problems<'_>,
    documents: &mut Vec<crate::model::Document>,
) {
    let trees = yaml::read(text, problems);
    let empty = trees.iter().all(|t| matches!(t.root.value, Value::Null));
    if empty && !problems.any() {
        let help = "an empty file is not taken for an empty policy: write `apiVersion: causeway/v1` \
                    and what follows, or delete the policy";
        problems.error(0..0, "the file has no document", help);
    }
    let mut names = BTreeSet::new();
    for tree in &trees {
        if matches!(tree.root.value, Value::Null) {
            continue;
        }
        let source = text.get(tree.span.clone()).unwrap_or_default();
        let Some((document, name)) = document::read(&tree.root, source, problems) else {
            continue;
        };
        if !names.insert(document.reference().clone()) {
            let message = format!("`{}` is in this file twice", document.reference());
            problems.error(name, message, "give one of them another name");
        }
        documents.push(document);
    }
}
