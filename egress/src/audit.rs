//! What was decided, for whom and why: one JSON object a line.

mod log;
mod record;
mod time;

pub(crate) use log::{AuditLog, AuditWriter};
pub use record::{AuditRecord, Outcome, Protocol};
pub use time::{Timestamp, TimestampError};
