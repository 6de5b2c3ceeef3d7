//! Which messages a VPP offers, and which a caller needs.

use std::collections::HashMap;
use std::fmt;

use crate::messages::memclnt::{ControlPing, TableEntry};
use crate::messages::{Message, MessageId};

/// The numbers of messages. They hold for one connection only.
#[derive(Clone, Debug, Default)]
pub struct MessageTable {
    /// Name, and the CRC and number of each definition with that name.
    by_name: HashMap<String, Vec<(u32, u16)>>,
    /// The CRC of each number.
    crcs: HashMap<u16, u32>,
}

impl MessageTable {
    /// The table of a handshake. Entries that are not a name and a CRC are left out.
    pub fn new(entries: &[TableEntry]) -> Self {
        let mut by_name: HashMap<String, Vec<(u32, u16)>> = HashMap::with_capacity(entries.len());
        let mut crcs = HashMap::with_capacity(entries.len());
        for entry in entries {
            let text = entry.name.to_str();
            let Some((name, crc)) = text.rsplit_once('_') else {
                continue;
            };
            let Ok(crc) = u32::from_str_radix(crc, 16) else {
                continue;
            };
            by_name
                .entry(name.to_owned())
                .or_default()
                .push((crc, entry.index));
            crcs.insert(entry.index, crc);
        }
        Self { by_name, crcs }
    }

    /// The number of a message.
    pub fn number(&self, id: MessageId) -> Option<u16> {
        self.by_name
            .get(id.name)?
            .iter()
            .find_map(|(crc, number)| (*crc == id.crc).then_some(*number))
    }

    /// The name of the message with a number.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.by_name.iter().find_map(|(name, definitions)| {
            definitions
                .iter()
                .any(|(_, known)| *known == number)
                .then_some(name.as_str())
        })
    }

    /// The CRC of the message with a number.
    pub fn crc(&self, number: u16) -> Option<u32> {
        self.crcs.get(&number).copied()
    }

    /// The CRCs that are offered under a name.
    pub fn crcs(&self, name: &str) -> Vec<u32> {
        self.by_name
            .get(name)
            .into_iter()
            .flatten()
            .map(|(crc, _)| *crc)
            .collect()
    }

    /// Whether a message can be used, with everything that answers it.
    pub fn has<M: Message>(&self) -> bool {
        M::IDS.iter().all(|id| self.number(*id).is_some())
    }

    /// How many messages are offered.
    pub fn len(&self) -> usize {
        self.by_name.values().map(Vec::len).sum()
    }

    /// Whether no message is offered.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The messages that a caller cannot do without.
#[derive(Clone, Debug)]
pub struct Needs {
    ids: Vec<MessageId>,
}

impl Default for Needs {
    fn default() -> Self {
        Self::new()
    }
}

impl Needs {
    /// Only what the client itself needs.
    pub fn new() -> Self {
        Self { ids: Vec::new() }.require::<ControlPing>()
    }

    /// This message too, with everything that answers it.
    #[must_use]
    pub fn require<M: Message>(mut self) -> Self {
        for id in M::IDS {
            if !self.ids.contains(id) {
                self.ids.push(*id);
            }
        }
        self
    }

    /// What a VPP does not offer of it.
    pub fn missing(&self, table: &MessageTable) -> Vec<Missing> {
        self.ids
            .iter()
            .filter(|id| table.number(**id).is_none())
            .map(|id| Missing {
                id: *id,
                offered: table.crcs(id.name),
            })
            .collect()
    }
}

/// A needed message that VPP does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The message.
    pub id: MessageId,
    /// The CRCs that VPP offers under that name: none when the plugin is not loaded, others when
    /// the release has another definition.
    pub offered: Vec<u32>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if self.offered.is_empty() {
            return write!(f, " (not offered under any definition)");
        }
        write!(f, " (offered with another definition:")?;
        for crc in &self.offered {
            write!(f, " {crc:08x}")?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Request;
    use crate::messages::interface::SwInterfaceDump;

    fn table(names: &[&str]) -> MessageTable {
        let entries: Vec<_> = names
            .iter()
            .zip(100..)
            .map(|(name, index)| TableEntry {
                index,
                name: (*name).try_into().unwrap(),
            })
            .collect();
        MessageTable::new(&entries)
    }

    #[test]
    fn a_message_is_found_by_name_and_crc() {
        let table = table(&["control_ping_51077d14", "control_ping_reply_f6b0b8ca"]);
        assert_eq!(
            table.number(MessageId {
                name: "control_ping",
                crc: ControlPing::ID.crc
            }),
            Some(100)
        );
        assert_eq!(table.name(101), Some("control_ping_reply"));
        assert!(table.has::<ControlPing>());
        assert!(!table.has::<SwInterfaceDump>());
    }

    #[test]
    fn what_is_missing_is_named_with_what_is_there_instead() {
        let table = table(&[
            "control_ping_51077d14",
            "control_ping_reply_f6b0b8ca",
            "sw_interface_dump_00000001",
        ]);
        let missing = Needs::new().require::<SwInterfaceDump>().missing(&table);
        let said: Vec<_> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "sw_interface_dump_aa610c27 (offered with another definition: 00000001)",
                "sw_interface_details_6c221fc7 (not offered under any definition)",
            ]
        );
    }

    #[test]
    fn names_without_a_crc_are_passed_over() {
        assert!(table(&["nothing", "none_zzzzzzzz", ""]).is_empty());
    }
}
