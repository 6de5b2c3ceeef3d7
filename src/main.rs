//! The `causeway` command.

fn main() {}
