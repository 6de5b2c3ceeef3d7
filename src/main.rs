//! The `causeway` command.

/// Every proxied request allocates some dozens of times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    causeway::cli::main()
}
