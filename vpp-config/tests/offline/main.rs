//! The client against a fake VPP, so that it runs everywhere.

#[cfg(test)]
mod calls;
#[cfg(test)]
#[path = "../exchange/mod.rs"]
mod exchange;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod replay;
