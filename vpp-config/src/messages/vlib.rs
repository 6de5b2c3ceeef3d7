//! The program itself.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{CliOutput, Version};
use crate::wire::VarText;

requests! {
    /// What runs.
    ShowVersion("show_version", 0x51077d14) {} -> Version = 0xc919bde1;

    /// A command of VPP's command line, for what has no message. Its output is for people, and a
    /// long one stops forwarding while it is made.
    CliInband("cli_inband", 0xf8377302) { cmd: VarText } -> CliOutput = 0x05879051;
}
