//! What the tests of several crates share. Nothing of the product depends on it.

use std::fs;
use std::path::Path;

/// Writes down that the present test cannot run on this machine, and why, where the summary of
/// `make test` finds it.
///
/// # Panics
///
/// Without such a place: the test must not pass silently.
#[expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "called by tests only, which say what they skip and fail by panicking"
)]
pub fn skip(test: &str, reason: &str) {
    println!("skipped: {test}: {reason}");
    let Some(folder) = std::env::var_os("CAUSEWAY_SKIPS") else {
        panic!("{test} cannot run here: {reason} (`make test` collects what is skipped)");
    };
    let file = Path::new(&folder).join(format!(
        "{}-{}",
        test.replace("::", "."),
        std::process::id()
    ));
    if let Err(error) = fs::write(&file, reason) {
        panic!("{}: {error}", file.display());
    }
}

/// The name of the present test, as the test harness names its threads.
pub fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}
