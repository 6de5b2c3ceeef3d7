//! The connection itself.

use super::reply::{ApiJson, ApiVersions, Pid};
use crate::wire::{DecodeError, FixedText, Reader, Wire};

requests! {
    /// Answered at once, and after everything that was asked before. Ends dumps.
    ControlPing("control_ping", 0x51077d14) {} -> Pid = 0xf6b0b8ca;

    /// Which versions of which API files VPP has.
    ApiVersionsGet("api_versions", 0x51077d14) {} -> ApiVersions = 0x5f0d99d6;

    /// Every definition that VPP has, as JSON: more than a megabyte.
    GetApiJson("get_api_json", 0x51077d14) {} -> ApiJson = 0xea715b59;
}

wire_structs! {
    /// The version of one API file.
    ModuleVersion {
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
        /// The patch level.
        patch: u32,
        /// The file.
        name: FixedText<64>,
    }

    /// The first message: its id is always 15, and it has no client index.
    SockclntCreate {
        /// Answered with.
        context: u32,
        /// Who connects.
        name: FixedText<64>,
    }

    /// The answer to it: its id is always 16.
    SockclntCreateReply {
        /// Not the index that later messages carry.
        client_index: u32,
        /// As asked with.
        context: u32,
        /// Zero, or why not.
        response: i32,
        /// The index that later messages carry.
        index: u32,
        /// Which number each message has in this connection.
        [u16: message_table] message_table: Vec<TableEntry>,
    }

    /// The number of one message.
    TableEntry {
        /// The number.
        index: u16,
        /// Its name, an underscore and its CRC.
        name: FixedText<64>,
    }
}

impl SockclntCreateReply {
    /// The rest of it, after the index.
    pub(crate) fn after_index(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let context = u32::get(input)?;
        let response = i32::get(input)?;
        let index = u32::get(input)?;
        input.count::<u16>()?;
        let message_table = Wire::get(input)?;
        Ok(Self {
            client_index: 0,
            context,
            response,
            index,
            message_table,
        })
    }
}

/// The id of [`SockclntCreate`].
pub const SOCKCLNT_CREATE_ID: u16 = 15;
/// The id of [`SockclntCreateReply`].
pub const SOCKCLNT_CREATE_REPLY_ID: u16 = 16;
