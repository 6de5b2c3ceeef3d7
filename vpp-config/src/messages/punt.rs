//! What VPP hands to others than its own stack.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{Done, Pathname};
use crate::types::{AddressFamily, FibPath, InterfaceIndex, IpProto};
use crate::wire::{DecodeError, EncodeError, FixedText, Reader, VarText, Wire, Writer};

/// Which packets are punted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Punt {
    /// Packets to a port.
    L4 {
        af: AddressFamily,
        protocol: IpProto,
        port: u16,
    },
    /// Packets of a protocol.
    IpProto {
        af: AddressFamily,
        protocol: IpProto,
    },
    /// Packets that a node punts for a reason of its own.
    Exception { id: u32 },
}

/// A tag, and a union as large as its largest member.
impl Wire for Punt {
    const MIN: usize = 8;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        match self {
            Punt::L4 { af, protocol, port } => {
                0u32.put(out)?;
                af.put(out)?;
                protocol.put(out)?;
                port.put(out)
            }
            Punt::IpProto { af, protocol } => {
                1u32.put(out)?;
                af.put(out)?;
                protocol.put(out)?;
                out.zeros(2);
                Ok(())
            }
            Punt::Exception { id } => {
                2u32.put(out)?;
                id.put(out)
            }
        }
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = u32::get(input)?;
        let mut union = Reader::new(input.take(4)?);
        Ok(match tag {
            0 => Punt::L4 {
                af: Wire::get(&mut union)?,
                protocol: Wire::get(&mut union)?,
                port: Wire::get(&mut union)?,
            },
            1 => Punt::IpProto {
                af: Wire::get(&mut union)?,
                protocol: Wire::get(&mut union)?,
            },
            2 => Punt::Exception {
                id: Wire::get(&mut union)?,
            },
            tag => return Err(DecodeError::Tag { union: "punt", tag }),
        })
    }

    fn unset() -> Self {
        Punt::Exception { id: 0 }
    }
}

#[cfg(test)]
impl crate::wire::sample::Sample for Punt {
    fn sample(random: &mut crate::wire::sample::Random) -> Self {
        use crate::wire::sample::Sample;

        match random.below(3) {
            0 => Punt::L4 {
                af: Sample::sample(random),
                protocol: Sample::sample(random),
                port: Sample::sample(random),
            },
            1 => Punt::IpProto {
                af: Sample::sample(random),
                protocol: Sample::sample(random),
            },
            _ => Punt::Exception {
                id: Sample::sample(random),
            },
        }
    }
}

wire_structs! {
    /// A reason for which nodes punt.
    PuntReason {
        id: u32,
        name: VarText,
    }

    /// Where punted packets go.
    PuntRedirectV2 {
        /// Those that came by this interface; by default, those of any.
        rx_sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
        af: AddressFamily,
        [u32: paths] paths: Vec<FibPath>,
    }
}

requests! {
    /// Hands packets to the host's own stack.
    SetPunt("set_punt", 0x47d0e347) {
        is_add: bool,
        punt: Punt,
    } -> Done = 0xe8d4e804;

    /// Hands packets to a socket.
    PuntSocketRegister("punt_socket_register", 0x7875badb) {
        header_version: u32 = 1,
        punt: Punt,
        pathname: FixedText<108>,
    } -> Pathname = 0xbd30ae90;

    /// Sends punted packets along paths.
    AddDelIpPuntRedirectV2("add_del_ip_punt_redirect_v2", 0x9e804227) {
        is_add: bool = true,
        punt: PuntRedirectV2,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// One reason, or all.
    PuntReasonDump("punt_reason_dump", 0x5c0dd4fe) { reason: PuntReason } =>
    /// A reason.
    PuntReasonDetails("punt_reason_details", 0x2c9d4a40) { reason: PuntReason };

    /// Where punted packets go.
    IpPuntRedirectV2Dump("ip_punt_redirect_v2_dump", 0xd817a484) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
        af: AddressFamily,
    } =>
    /// Where punted packets go.
    IpPuntRedirectV2Details("ip_punt_redirect_v2_details", 0x7ba42e1d) {
        punt: PuntRedirectV2,
    };
}
