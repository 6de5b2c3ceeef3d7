//! The client against a fake VPP, so that it runs everywhere.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod reconnect;
