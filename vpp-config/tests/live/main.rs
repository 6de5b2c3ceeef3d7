//! Everything against a real VPP, each test with an instance of its own. Without one, each says so.

mod instance;

mod attach;
mod configure;
mod filter;
mod restart;
mod stats;
mod table;
