//! The address book as its users see it.
//!
//! The modules say `cfg(test)` so that lints know helpers for the test code that they are.

#[cfg(test)]
mod elsewhere;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod model;
#[cfg(test)]
mod redb;
#[cfg(test)]
mod support;
