//! Small helpers for text.

use std::error::Error;
use std::fmt::Write;

/// An error and what caused it, on one line.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a `String` cannot fail.
        let _infallible = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
