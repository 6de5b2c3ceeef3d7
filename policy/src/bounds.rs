//! How large a policy file may be. A file beyond a bound is refused as a whole.

/// The longest file, in bytes.
pub const FILE: usize = 4 << 20;
/// The most documents in one file.
pub const DOCUMENTS: usize = 256;
/// The most YAML nodes (keys, values and lists) in one file.
pub const NODES: usize = 500_000;
/// How deep lists and mappings nest, for block style and flow style each.
pub const DEPTH: usize = 16;
/// The most problems that are reported for one file.
pub const PROBLEMS: usize = 100;
/// The most egress rules, and the most ingress rules, in one document.
pub const RULES: usize = 10_000;
/// The most names in one document.
pub const NAMES: usize = 100_000;
/// The most prefixes in one document.
pub const PREFIXES: usize = 1_000;
/// The most entries in `ports`.
pub const PORTS: usize = 64;
/// The most entries in `http`, `methods` or `paths`.
pub const HTTP: usize = 256;
/// The most secrets in one document.
pub const SECRETS: usize = 256;
/// The most secret hosts in one document.
pub const SECRET_HOSTS: usize = 1_000;
