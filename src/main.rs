//! The `causeway` command.

fn main() -> std::process::ExitCode {
    causeway::cli::main()
}
