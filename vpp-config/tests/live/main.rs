//! Everything against a real VPP, each test with an instance of its own. Without one, each says so.

#[cfg(test)]
#[path = "../exchange/mod.rs"]
mod exchange;
#[cfg(test)]
mod instance;

#[cfg(test)]
mod attach;
#[cfg(test)]
mod configure;
#[cfg(test)]
mod filter;
#[cfg(test)]
mod record;
#[cfg(test)]
mod reduced;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod stats;
#[cfg(test)]
mod table;
