// The cases, for whatever forwarder the file that includes this has chosen.

use std::io::Read;
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener};

use causeway_dataplane::elements::{Element, GroupId, ServiceBlock};
use causeway_types::{GATEWAY, MacAddress, RESOLVER, Reason};

use causeway_dataplane::kernel::PROXY_PORT;
use lab::{
    CONTROL, Case, HOSTILE, Lab, OUTSIDE, address, carries, hasten_reassembly, inside, isolated,
};
use packet::*;

/// `a` is the hostile one. `b` is of its tenant and accepts port 7000 only; `d` accepts
/// everything; `c` is another tenant's.
fn lab() -> Lab {
    let mut lab = Lab::new(&["a", "b", "c", "d"]);
    for (name, number) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        lab.group(name, number);
    }
    let (a, b, d) = (GroupId(1), GroupId(2), GroupId(4));
    let net = |text: &str| text.parse().unwrap();
    let port = |protocol, first_port, last_port| ServiceBlock {
        first_protocol: protocol,
        last_protocol: protocol,
        first_port,
        last_port,
    };
    lab.add(&[
        Element::Reach { from: a, to: d },
        Element::Reach { from: d, to: a },
        Element::Reach { from: b, to: d },
        Element::Shared { from: a, to: b },
        Element::Shared { from: b, to: a },
        Element::ReachPorts {
            from: a,
            to: b,
            service: port(UDP, 7000, 7000),
        },
        Element::ReachPorts {
            from: a,
            to: b,
            service: port(TCP, 7000, 7000),
        },
        Element::Egress {
            group: a,
            prefix: net("::/0"),
            service: port(UDP, 53, 53),
        },
        Element::Egress {
            group: a,
            prefix: net("2a0f::/32"),
            service: port(ICMPV6, 0, u16::MAX),
        },
        Element::EgressReserved {
            group: a,
            prefix: net("fd12::/16"),
            service: port(UDP, 53, 53),
        },
        Element::EgressDeny {
            group: a,
            prefix: net("2a0f::dead/128"),
            service: ServiceBlock::ALL,
        },
        Element::Inbound {
            group: d,
            prefix: net("2a0f::/32"),
            service: port(UDP, 8000, 8000),
        },
    ]);
    lab
}

fn to(name: &str) -> (Ipv6Addr, Ipv6Addr) {
    (address("a"), address(name))
}

fn to_address(text: &str) -> (Ipv6Addr, Ipv6Addr) {
    (address("a"), text.parse().unwrap())
}

fn control() -> Packet {
    udp(to("b"), (4000, 7000), CONTROL)
}

/// A frame from `a` to its gateway.
fn framed(packet: &Packet) -> Vec<u8> {
    frame(
        MacAddress::GATEWAY.octets(),
        MacAddress::for_lease(address("a")).octets(),
        0x86dd,
        &packet.bytes(),
    )
}

fn case<'a>(name: &'a str, packet: &Packet, reason: Reason) -> Case<'a> {
    Case {
        name,
        from: "a",
        frames: vec![framed(packet)],
        reason,
        count: 1,
        control: control(),
        control_at: "b",
    }
}

fn all_pass(lab: &mut Lab, cases: &[(&str, Packet, Reason)]) {
    for (name, packet, reason) in cases {
        lab.hostile(&case(name, packet, *reason));
    }
}

#[test]
fn forged_sources() {
    isolated(|| {
        let mut lab = lab();
        let from = |text: &str| udp((text.parse().unwrap(), address("b")), (4000, 7000), HOSTILE);
        let other_link_local = lab.host("b").link_local();
        let mut cases = vec![
            (
                "a neighbour's address",
                udp((address("d"), address("b")), (4000, 7000), HOSTILE),
            ),
            (
                "another tenant's address",
                udp((address("c"), address("b")), (4000, 7000), HOSTILE),
            ),
            ("an outside address", from("2a0f::1")),
            ("a free address of the operator", from("2a0e:1:2::99")),
            ("the gateway's address", from("fe80::1")),
            (
                "the resolver's address",
                udp((RESOLVER, address("b")), (53, 7000), HOSTILE),
            ),
            ("the router's uplink address", from("2a0f::ff")),
            ("no address", from("::")),
            ("a mapped address", from("::ffff:192.0.2.1")),
            (
                "another's link-local address",
                udp((other_link_local, address("b")), (4000, 7000), HOSTILE),
            ),
        ];
        // Its own address, and then a fragment in another's name.
        let fragment = udp((address("d"), address("b")), (4000, 7000), HOSTILE).fragments(9, &[16]);
        cases.push(("a fragment in another's name", fragment[0].clone()));
        for (name, packet) in cases {
            lab.hostile(&case(name, &packet, Reason::SpoofedSource));
        }
    });
}

#[test]
fn forged_neighbour_discovery() {
    isolated(|| {
        let mut lab = lab();
        let own = lab.host("a").link_local();
        let mac = lab.host("a").mac.octets();
        let all: Ipv6Addr = "ff02::1".parse().unwrap();
        let solicited: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
        let unspecified = Ipv6Addr::UNSPECIFIED;
        let mut advert = vec![64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        advert.extend_from_slice(HOSTILE);
        let redirect = [&[0; 4][..], &address("b").octets(), &own.octets()].concat();
        let gateway = (own, GATEWAY);
        let discovery = Reason::NeighbourDiscovery;
        let advertisement = Reason::RouterAdvertisement;
        all_pass(
            &mut lab,
            &[
                (
                    "NA for the gateway",
                    neighbour((own, all), 136, GATEWAY, mac),
                    discovery,
                ),
                (
                    "NA for a neighbour",
                    neighbour((address("a"), all), 136, address("b"), mac),
                    discovery,
                ),
                (
                    "NA to the gateway",
                    neighbour(gateway, 136, address("b"), mac),
                    discovery,
                ),
                (
                    "NS for a neighbour",
                    neighbour((own, all), 135, address("b"), mac),
                    discovery,
                ),
                (
                    "NS that came from afar",
                    neighbour(gateway, 135, GATEWAY, mac).hop_limit(254),
                    discovery,
                ),
                (
                    "duplicate detection of the gateway",
                    neighbour((unspecified, solicited), 135, GATEWAY, mac),
                    discovery,
                ),
                (
                    "redirect",
                    icmp(gateway, 137, 0, &redirect).hop_limit(255),
                    discovery,
                ),
                (
                    "redirect to a neighbour",
                    icmp((address("a"), address("b")), 137, 0, &redirect).hop_limit(255),
                    discovery,
                ),
                (
                    "RA to all",
                    icmp((own, all), 134, 0, &advert).hop_limit(255),
                    advertisement,
                ),
                (
                    "RA to the gateway",
                    icmp(gateway, 134, 0, &advert).hop_limit(255),
                    advertisement,
                ),
                (
                    "RA to a neighbour",
                    icmp(to("b"), 134, 0, &advert).hop_limit(255),
                    advertisement,
                ),
                (
                    "RA in the gateway's name",
                    icmp((GATEWAY, all), 134, 0, &advert).hop_limit(255),
                    Reason::SpoofedSource,
                ),
                (
                    "RA behind a header",
                    icmp((own, all), 134, 0, &advert)
                        .hop_limit(255)
                        .behind(DESTINATION, &[1, 4, 0, 0, 0, 0]),
                    Reason::ExtensionHeader,
                ),
            ],
        );
        let fragments = icmp((own, all), 134, 0, &advert)
            .hop_limit(255)
            .fragments(3, &[8]);
        lab.hostile(&Case {
            frames: fragments.iter().map(framed).collect(),
            count: 2,
            ..case("RA in fragments", &control(), Reason::Fragment)
        });

        // The control: the gateway answers who asks for it.
        let before = lab.drops();
        lab.host("a")
            .send(&neighbour((own, solicited), 135, GATEWAY, mac));
        lab.host("a")
            .await_frame(|frame| frame.get(54) == Some(&136));
        // And what an ordinary host says is passed over in silence.
        let report = icmp((own, "ff02::16".parse().unwrap()), 143, 0, &[0; 4]).hop_limit(1);
        lab.host("a")
            .send(&report.clone().behind(HOP_BY_HOP, &[5, 2, 0, 0, 1, 0]));
        lab.host("a")
            .send(&icmp((own, "ff02::2".parse().unwrap()), 133, 0, &[0; 4]).hop_limit(255));
        lab.host("a").send(&control());
        lab.host("b").await_frame(|frame| carries(frame, CONTROL));
        assert!(lab.since(&before).is_empty());
    });
}

#[test]
fn other_tenants_and_the_router() {
    isolated(|| {
        let mut lab = lab();
        let uplink = "2a0f::ff";
        all_pass(
            &mut lab,
            &[
                (
                    "UDP to another tenant",
                    udp(to("c"), (4000, 7000), HOSTILE),
                    Reason::NoSharedNetwork,
                ),
                (
                    "TCP to another tenant",
                    tcp(to("c"), (4000, 7000), SYN, HOSTILE),
                    Reason::NoSharedNetwork,
                ),
                (
                    "echo to another tenant",
                    echo(to("c"), HOSTILE),
                    Reason::NoSharedNetwork,
                ),
                (
                    "another protocol to another tenant",
                    Packet::new(address("a"), address("c"), 89, HOSTILE.to_vec()),
                    Reason::NoSharedNetwork,
                ),
                (
                    "a closed port",
                    udp(to("b"), (4000, 7001), HOSTILE),
                    Reason::IngressDenied,
                ),
                (
                    "a closed TCP port",
                    tcp(to("b"), (4000, 22), SYN, HOSTILE),
                    Reason::IngressDenied,
                ),
                (
                    "echo against a port rule",
                    echo(to("b"), HOSTILE),
                    Reason::IngressDenied,
                ),
                (
                    "a free address",
                    udp(to_address("2a0e:1:2::77"), (4000, 53), HOSTILE),
                    Reason::NoSuchSandbox,
                ),
                (
                    "TCP to a free address",
                    tcp(to_address("2a0e:1:2:3::77"), (4000, 80), SYN, HOSTILE),
                    Reason::NoSuchSandbox,
                ),
                (
                    "a service of the gateway",
                    udp((address("a"), GATEWAY), (4000, 53), HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "a TCP service of the gateway",
                    tcp((address("a"), GATEWAY), (4000, 22), SYN, HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "a service of the resolver",
                    udp((address("a"), RESOLVER), (4000, 123), HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "the proxy's port on the resolver",
                    tcp((address("a"), RESOLVER), (4000, PROXY_PORT), SYN, HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "echo to the resolver",
                    echo((address("a"), RESOLVER), HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "the router's uplink address",
                    udp(to_address(uplink), (4000, 53), HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "TCP to the router's uplink address",
                    tcp(to_address(uplink), (4000, 22), SYN, HOSTILE),
                    Reason::RouterService,
                ),
                (
                    "another on the link",
                    udp(to_address("fe80::2"), (4000, 53), HOSTILE),
                    Reason::ReservedDestination,
                ),
                (
                    "multicast",
                    udp(to_address("ff02::1"), (4000, 5353), HOSTILE),
                    Reason::Multicast,
                ),
                (
                    "multicast beyond the link",
                    udp(to_address("ff0e::1"), (4000, 5353), HOSTILE),
                    Reason::Multicast,
                ),
            ],
        );
        // Controls beside the router's: its echo, and its resolver's port.
        lab.quiet();
        let before = lab.drops();
        lab.host("a").send(&echo((address("a"), GATEWAY), CONTROL));
        lab.host("a")
            .await_frame(|frame| carries(frame, CONTROL) && frame.get(54) == Some(&129));
        lab.host("a")
            .send(&udp((address("a"), RESOLVER), (4000, 53), CONTROL));
        // Nobody listens there: the router says so, which it would not if it had been dropped.
        lab.host("a")
            .await_frame(|frame| frame.get(54) == Some(&1) && carries(frame, CONTROL));
        assert!(lab.since(&before).is_empty());
    });
}

#[test]
fn outside_and_reserved_destinations() {
    isolated(|| {
        let mut lab = lab();
        for destination in [
            "fd00::1",
            "fc00::1",
            "fec0::1",
            "::1:2",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "::ffff:10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b::192.168.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2002:0a00:0001::1",
            "2001:0:1:2::1",
            "2600:db8::5efe:169.254.169.254",
            "2600:db8::200:5efe:10.0.0.1",
            "fd63:6175:7365:64::8.8.8.8",
            "fd63:6175:7365::54",
            "fd00:ec2::254",
            "5f00::1",
            "2001:db8::1",
            "100::1",
            "4000::1",
            // The operator's own: a tunnel end or segment.
            "2a0c:5::1",
        ] {
            let packet = udp(to_address(destination), (4000, 53), HOSTILE);
            lab.hostile(&Case {
                control: udp(to(OUTSIDE), (4000, 53), CONTROL),
                control_at: OUTSIDE,
                ..case(destination, &packet, Reason::ReservedDestination)
            });
        }
        for (name, packet) in [
            (
                "a port outside that no rule has",
                udp(to(OUTSIDE), (4000, 54), HOSTILE),
            ),
            (
                "echo where no rule has it",
                echo(to_address("2a10::1"), HOSTILE),
            ),
            (
                "a destination that is denied",
                udp(to_address("2a0f::dead"), (4000, 53), HOSTILE),
            ),
            (
                "another protocol",
                Packet::new(address("a"), address(OUTSIDE), 89, HOSTILE.to_vec()),
            ),
            (
                "ESP",
                Packet::new(address("a"), address(OUTSIDE), ESP, HOSTILE.to_vec()),
            ),
            (
                "IPv6 in IPv6",
                Packet::new(
                    address("a"),
                    address(OUTSIDE),
                    41,
                    udp(to("b"), (1, 7000), HOSTILE).bytes(),
                ),
            ),
        ] {
            lab.hostile(&Case {
                control: echo(to(OUTSIDE), CONTROL),
                control_at: OUTSIDE,
                ..case(name, &packet, Reason::EgressDenied)
            });
        }
        // A rule inside a reserved range opens it; public addresses in other forms are open.
        for destination in [
            "fd12::1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2600:db8::5efe:8.8.8.8",
        ] {
            lab.quiet();
            let before = lab.drops();
            lab.host("a")
                .send(&udp(to_address(destination), (4000, 53), CONTROL));
            lab.host(OUTSIDE)
                .await_frame(|frame| carries(frame, CONTROL));
            assert!(lab.since(&before).is_empty(), "{destination}");
        }
    });
}

#[test]
fn extension_headers() {
    isolated(|| {
        let mut lab = lab();
        let plain = || udp(to("d"), (4000, 7000), HOSTILE);
        let pad = [1, 4, 0, 0, 0, 0];
        // Segments left, and a segment: type 0 and type 4 (RFC 8754), which would carry the
        // packet on to `c`.
        let segment = address("c").octets();
        let routing = |kind: u8| {
            let mut body = vec![kind, 1, 0, 0, 0, 0];
            body.extend_from_slice(&segment);
            plain().behind(ROUTING, &body)
        };
        let mut chain = plain();
        for _ in 0..7 {
            chain = chain.behind(DESTINATION, &pad);
        }
        let jumbo = plain().behind(HOP_BY_HOP, &[0xc2, 4, 0, 1, 0, 8]);
        let mut authenticated = plain();
        authenticated.payload = [&[UDP, 4][..], &[0; 22], &plain().payload].concat();
        authenticated.next = AH;
        let header = Reason::ExtensionHeader;
        let mut cases = vec![
            ("routing type 0", routing(0), header),
            ("segment routing", routing(4), header),
            ("routing type 2", routing(2), header),
            ("hop-by-hop", plain().behind(HOP_BY_HOP, &pad), header),
            (
                "router alert",
                plain().behind(HOP_BY_HOP, &[5, 2, 0, 0, 1, 0]),
                header,
            ),
            (
                "destination options",
                plain().behind(DESTINATION, &pad),
                header,
            ),
            ("a chain of eight", chain.behind(HOP_BY_HOP, &pad), header),
            ("mobility", plain().behind(MOBILITY, &pad), header),
            ("authentication", authenticated, header),
            ("shim6", plain().behind(140, &pad), header),
            ("experimental", plain().behind(253, &pad), header),
            (
                "nothing follows",
                Packet::new(address("a"), address("d"), NO_NEXT, HOSTILE.to_vec()),
                header,
            ),
            (
                "a segment of the operator's",
                udp(to_address("2a0c:5::1"), (4000, 53), HOSTILE),
                Reason::ReservedDestination,
            ),
        ];
        // A header hidden in fragments shows when they are put together.
        let hidden = plain().behind(DESTINATION, &pad).fragments(77, &[16]);
        for (name, packet, reason) in cases.drain(..) {
            lab.hostile(&Case {
                control: udp(to("d"), (4000, 7000), CONTROL),
                control_at: "d",
                ..case(name, &packet, reason)
            });
        }
        lab.hostile(&Case {
            frames: hidden.iter().map(framed).collect(),
            ..case("destination options in fragments", &control(), header)
        });
        lab.quiet();
        // The kernel throws this away before anybody can count it; it must not arrive.
        lab.host("a").send(&jumbo);
        lab.host("a").send(&control());
        lab.host("b").await_frame(|frame| carries(frame, CONTROL));
        assert!(
            lab.host("d")
                .arrived()
                .iter()
                .all(|frame| !carries(frame, HOSTILE))
        );
    });
}

#[test]
fn fragments_against_a_port_rule() {
    isolated(|| {
        let mut lab = lab();
        hasten_reassembly();
        let long = |tag: &[u8]| [&[0; 8][..], tag, &[0; 112]].concat();
        let denied = udp(to("b"), (4000, 7001), &long(HOSTILE));
        let denied_tcp = tcp(to("b"), (4000, 22), SYN, &long(HOSTILE));
        // Whole once put together, and then judged by its port.
        for (name, packets) in [
            ("header in the first", denied.fragments(1, &[64])),
            ("header cut in two", denied.fragments(2, &[8])),
            (
                "out of order",
                denied.fragments(3, &[8, 64]).into_iter().rev().collect(),
            ),
            ("atomic", denied.fragments(4, &[])),
        ] {
            lab.hostile(&Case {
                frames: packets.iter().map(framed).collect(),
                ..case(name, &control(), Reason::IngressDenied)
            });
        }
        // A first fragment without the whole header is no good for anybody (RFC 8200, 4.5).
        let open_tcp = tcp(to("b"), (4000, 7000), SYN, &long(HOSTILE));
        for (name, packets) in [
            ("TCP header in both", denied_tcp.fragments(5, &[16])),
            ("TCP flags in the second", denied_tcp.fragments(6, &[8])),
            (
                "TCP flags in the second on an open port",
                open_tcp.fragments(7, &[8]),
            ),
        ] {
            lab.hostile(&Case {
                frames: packets.iter().map(framed).collect(),
                ..case(name, &control(), Reason::Fragment)
            });
        }
        // The same cuts on an open port arrive.
        for (identification, cuts) in [(11, &[64][..]), (12, &[8]), (13, &[8, 64]), (14, &[])] {
            lab.quiet();
            let before = lab.drops();
            let open = udp(to("b"), (4000, 7000), &long(CONTROL));
            let mut packets = open.fragments(identification, cuts);
            packets.reverse();
            for packet in &packets {
                lab.host("a").send(packet);
            }
            lab.host("b").await_frame(|frame| carries(frame, CONTROL));
            assert!(lab.since(&before).is_empty(), "{cuts:?}");
        }
        // An open first fragment, and a second that writes another port over it; a lone
        // later fragment; and a first that is too short for its header. None arrives.
        let open = udp(to("b"), (4000, 7000), &long(HOSTILE));
        for (name, packets) in [
            (
                "overlap",
                vec![
                    open.fragment(21, 0, &open.payload[..64], true),
                    open.fragment(21, 8, &denied.payload[8..72], true),
                    open.fragment(21, 72, &denied.payload[72..], false),
                ],
            ),
            (
                "overlap of the header",
                vec![
                    open.fragment(22, 0, &open.payload[..64], true),
                    open.fragment(22, 0, &denied.payload[..72], true),
                    open.fragment(22, 72, &denied.payload[72..], false),
                ],
            ),
            (
                "lone",
                vec![open.fragment(23, 64, &open.payload[64..], false)],
            ),
            (
                "lone in the middle",
                vec![open.fragment(24, 64, &open.payload[64..96], true)],
            ),
            (
                "without its end",
                vec![open.fragment(25, 0, &open.payload[..64], true)],
            ),
        ] {
            lab.quiet();
            let before = lab.drops();
            for packet in &packets {
                lab.host("a").send(packet);
            }
            lab.host("a").send(&control());
            lab.control_alone("b");
            assert!(lab.since(&before).is_empty(), "{name}");
        }
        // All are counted: three cut headers at once, and once the kernel gives up waiting what
        // followed those and what came alone, of each overlap the last fragment.
        lab.await_count("a", Reason::Fragment, 11);
    });
}

#[test]
fn other_protocols_and_malformed_packets() {
    isolated(|| {
        let mut lab = lab();
        let mac = MacAddress::for_lease(address("a")).octets();
        let gateway = MacAddress::GATEWAY.octets();
        let mut ipv4 = vec![
            0x45, 0, 0, 44, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 15, 160, 27, 88, 0,
            24, 0, 0,
        ];
        let sum: u32 = ipv4[..20]
            .chunks(2)
            .map(|p| u32::from(p[0]) << 8 | u32::from(p[1]))
            .sum();
        let folded = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        ipv4[10..12].copy_from_slice(&folded.to_be_bytes());
        ipv4.extend_from_slice(HOSTILE);
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
        arp.extend_from_slice(&mac);
        arp.extend_from_slice(&[10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        for (name, bytes) in [
            ("IPv4", frame(gateway, mac, 0x0800, &ipv4)),
            ("ARP", frame([0xff; 6], mac, 0x0806, &arp)),
        ] {
            lab.hostile(&Case {
                frames: vec![bytes],
                ..case(name, &control(), Reason::NotIpv6)
            });
        }
        let mut bad_sum = udp(to("b"), (4000, 7000), HOSTILE);
        bad_sum.payload[6] ^= 1;
        let mut short = tcp(to("b"), (4000, 7000), SYN, HOSTILE);
        short.payload.truncate(12);
        let unrelated = [
            &[0; 4][..],
            &udp((address("b"), address("a")), (9, 9), HOSTILE).bytes(),
        ]
        .concat();
        all_pass(
            &mut lab,
            &[
                ("a wrong checksum", bad_sum, Reason::Invalid),
                ("a cut header", short, Reason::Invalid),
                (
                    "impossible flags",
                    tcp(to("b"), (4000, 7000), SYN | 1, HOSTILE),
                    Reason::Invalid,
                ),
                (
                    "an empty packet",
                    Packet::new(address("a"), address("b"), UDP, Vec::new()),
                    Reason::Invalid,
                ),
                (
                    "an error about nothing",
                    icmp(to("b"), 1, 4, &unrelated),
                    Reason::Invalid,
                ),
            ],
        );
        // At the end of its life a packet goes no further; the sandbox is told.
        for hop_limit in [0, 1] {
            lab.quiet();
            lab.host("a")
                .send(&udp(to("b"), (4001, 7000), HOSTILE).hop_limit(hop_limit));
            lab.host("a").send(&control());
            lab.control_alone("b");
        }
    });
}

/// A destination or port unreachable about `packet`, with as much of it as fits.
fn error_about(ends: (Ipv6Addr, Ipv6Addr), packet: &Packet) -> Packet {
    icmp(ends, 1, 4, &[&[0; 4][..], &packet.bytes()].concat())
}

#[test]
fn a_sandbox_speaks_of_no_flow_but_its_own() {
    isolated(|| {
        let mut lab = lab();
        let framed_from = |name: &str, packet: &Packet| {
            let mac = MacAddress::for_lease(address(name)).octets();
            frame(MacAddress::GATEWAY.octets(), mac, 0x86dd, &packet.bytes())
        };
        // Two flows of `a`: to `b`, and to the outside.
        let inside = udp(to("b"), (4000, 7000), CONTROL);
        lab.host("a").send(&inside);
        lab.host("b").await_frame(|frame| carries(frame, CONTROL));
        let outwards = udp(to(OUTSIDE), (4000, 53), CONTROL);
        lab.host("a").send(&outwards);
        lab.host(OUTSIDE)
            .await_frame(|frame| carries(frame, CONTROL));
        // The other end of each may tell `a` that something is wrong.
        lab.quiet();
        lab.host("b")
            .send(&error_about((address("b"), address("a")), &inside));
        lab.host("a").await_frame(|frame| carries(frame, CONTROL));
        let router = lab.router_mac.clone();
        let mac = lab.host(OUTSIDE).mac.octets();
        let error = error_about((address(OUTSIDE), address("a")), &outwards);
        lab.quiet();
        lab.host(OUTSIDE)
            .send_frame(&frame(router_octets(&router), mac, 0x86dd, &error.bytes()));
        lab.host("a").await_frame(|frame| carries(frame, CONTROL));
        // `c` is another tenant's, and knows of the flows because the two have agreed.
        let inside = udp(to("b"), (4000, 7000), HOSTILE);
        let outwards = udp(to(OUTSIDE), (4000, 53), HOSTILE);
        let answer = udp((address(OUTSIDE), address("a")), (53, 4000), HOSTILE);
        let control = udp((address("d"), address("a")), (1, 1), CONTROL);
        for (name, packet) in [
            (
                "about a flow between others",
                error_about((address("c"), address("a")), &inside),
            ),
            (
                "to a sandbox about its flow to the outside",
                error_about((address("c"), address("a")), &outwards),
            ),
            (
                "to the outside about another's flow",
                error_about((address("c"), address(OUTSIDE)), &answer),
            ),
        ] {
            lab.quiet();
            let before = lab.drops();
            let from = lab.host("c").index;
            lab.host("c").send_frame(&framed_from("c", &packet));
            lab.host("d").send(&control);
            lab.control_alone("a");
            let expected =
                causeway_dataplane::kernel::nft::Drops::from([((from, Reason::Invalid), 1)]);
            assert_eq!(lab.moved(&before, &expected), expected, "{name}");
            for frame in lab.host(OUTSIDE).arrived() {
                assert!(!carries(&frame, HOSTILE), "{name}: outside");
            }
        }
    });
}

#[test]
fn replies_pass_and_a_change_takes_effect_on_live_flows() {
    isolated(|| {
        let mut lab = lab();
        let back = |tag: &[u8]| udp((address("b"), address("a")), (7000, 4000), tag);
        // Nothing from b to a, until a has asked.
        let b = MacAddress::for_lease(address("b")).octets();
        lab.hostile(&Case {
            from: "b",
            frames: vec![frame(
                MacAddress::GATEWAY.octets(),
                b,
                0x86dd,
                &back(HOSTILE).bytes(),
            )],
            control: udp((address("b"), address("d")), (1, 1), CONTROL),
            control_at: "d",
            ..case("a reply to nothing", &control(), Reason::IngressDenied)
        });
        lab.quiet();
        lab.host("a").send(&udp(to("b"), (4000, 7000), CONTROL));
        lab.host("b").await_frame(|frame| carries(frame, CONTROL));
        lab.host("b").send(&back(CONTROL));
        lab.host("a").await_frame(|frame| carries(frame, CONTROL));

        // The rule goes: with it both directions of the flow that it permitted.
        let rule = Element::ReachPorts {
            from: GroupId(1),
            to: GroupId(2),
            service: ServiceBlock {
                first_protocol: UDP,
                last_protocol: UDP,
                first_port: 7000,
                last_port: 7000,
            },
        };
        stamped(&mut lab);
        lab.change(&[], &[rule]);
        both_are_dropped(&mut lab, Reason::IngressDenied);
        lab.change(&[rule], &[]);
        stamped(&mut lab);

        // Quarantine of either end.
        for name in ["a", "b"] {
            let quarantine = Element::Quarantine {
                prefix: address(name).into(),
            };
            lab.change(&[quarantine], &[]);
            both_are_dropped(&mut lab, Reason::Quarantined);
            lab.change(&[], &[quarantine]);
            stamped(&mut lab);
        }
        // Another group, as when a label changes.
        let group = |number| Element::Group {
            address: address("a"),
            group: GroupId(number),
        };
        lab.change(&[group(9)], &[group(1)]);
        both_are_dropped(&mut lab, Reason::NoSharedNetwork);
    });
}

/// Sends one packet each way on the live flow while there is an epoch to stamp it with.
fn stamped(lab: &mut Lab) {
    lab.await_epoch();
    lab.host("a").send(&udp(to("b"), (4000, 7000), CONTROL));
    lab.host("b").await_frame(|frame| carries(frame, CONTROL));
    lab.host("b")
        .send(&udp((address("b"), address("a")), (7000, 4000), CONTROL));
    lab.host("a").await_frame(|frame| carries(frame, CONTROL));
}

#[test]
fn a_judged_flow_is_not_judged_again_until_a_right_is_taken_away() {
    isolated(|| {
        let mut lab = lab();
        stamped(&mut lab);
        // Behind the backend's back, so that the epoch goes on: the flow does too, and a new one
        // like it does not begin.
        Lab::flush("reach_ports");
        lab.host("a").send(&udp(to("b"), (4000, 7000), CONTROL));
        lab.host("b").await_frame(|frame| carries(frame, CONTROL));
        lab.hostile(&case(
            "a new flow",
            &udp(to("b"), (4001, 7000), HOSTILE),
            Reason::IngressDenied,
        ));
        // Any right will do.
        let group = Element::Group {
            address: address("d"),
            group: GroupId(4),
        };
        lab.change(&[], &[group]);
        both_are_dropped(&mut lab, Reason::IngressDenied);
    });
}

/// Sends one packet each way on the live flow, and sees both counted and none arrive.
fn both_are_dropped(lab: &mut Lab, reason: Reason) {
    lab.quiet();
    let before = lab.drops();
    lab.host("a").send(&udp(to("b"), (4000, 7000), HOSTILE));
    lab.host("b")
        .send(&udp((address("b"), address("a")), (7000, 4000), HOSTILE));
    let (a, b) = (lab.host("a").index, lab.host("b").index);
    let expected =
        causeway_dataplane::kernel::nft::Drops::from([((a, reason), 1), ((b, reason), 1)]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while lab.since(&before) != expected && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(lab.moved(&before, &expected), expected);
    for name in ["a", "b"] {
        assert!(
            lab.host(name)
                .arrived()
                .iter()
                .all(|frame| !carries(frame, HOSTILE))
        );
    }
}

#[test]
fn inbound_from_outside() {
    isolated(|| {
        let mut lab = lab();
        let from_outside = |name: &str, port, tag: &[u8]| {
            udp((address(OUTSIDE), address(name)), (5000, port), tag)
        };
        let uplink = lab.uplink;
        let router = lab.router_mac.clone();
        let mac = lab.host(OUTSIDE).mac.octets();
        let framed = |packet: &Packet| frame(router_octets(&router), mac, 0x86dd, &packet.bytes());
        let forged = udp((address("a"), address("d")), (4000, 8000), HOSTILE);
        for (name, packet, reason) in [
            (
                "a port that is not offered",
                from_outside("d", 8001, HOSTILE),
                Reason::IngressDenied,
            ),
            (
                "a sandbox that offers nothing",
                from_outside("a", 8000, HOSTILE),
                Reason::IngressDenied,
            ),
            ("in a sandbox's name", forged, Reason::SpoofedSource),
            (
                "an address that nobody holds",
                udp(
                    (address(OUTSIDE), "2a0e:1:2::55".parse().unwrap()),
                    (1, 1),
                    HOSTILE,
                ),
                Reason::NoSuchSandbox,
            ),
            (
                "through us to others",
                udp(
                    (address(OUTSIDE), "2a10::1".parse().unwrap()),
                    (1, 1),
                    HOSTILE,
                ),
                Reason::ReservedDestination,
            ),
            (
                "a service of the router",
                udp(
                    (address(OUTSIDE), "2a0f::ff".parse().unwrap()),
                    (1, 53),
                    HOSTILE,
                ),
                Reason::RouterService,
            ),
        ] {
            lab.quiet();
            let before = lab.drops();
            lab.host(OUTSIDE).send_frame(&framed(&packet));
            lab.host(OUTSIDE)
                .send_frame(&framed(&from_outside("d", 8000, CONTROL)));
            lab.host("d").await_frame(|frame| carries(frame, CONTROL));
            let expected = causeway_dataplane::kernel::nft::Drops::from([((uplink, reason), 1)]);
            assert_eq!(lab.moved(&before, &expected), expected, "{name}");
        }
        // And the answer comes back.
        lab.host("d").send(&udp(
            (address("d"), address(OUTSIDE)),
            (8000, 5000),
            CONTROL,
        ));
        lab.host(OUTSIDE)
            .await_frame(|frame| carries(frame, CONTROL));
    });
}

fn router_octets(text: &str) -> [u8; 6] {
    text.parse::<MacAddress>().unwrap().octets()
}

#[test]
fn the_proxy_gets_all_tcp_and_nothing_passes_without_it() {
    isolated(|| {
        let mut lab = lab();
        let hostile = tcp(to(OUTSIDE), (4000, 443), SYN, HOSTILE);
        lab.hostile(&case("TCP without a proxy", &hostile, Reason::ProxyDown));
        let private = tcp(to_address("fd00::1"), (4000, 443), SYN, HOSTILE);
        lab.hostile(&case(
            "TCP to a private address without a proxy",
            &private,
            Reason::ProxyDown,
        ));

        // With a proxy the connection arrives there, with its destination as local address.
        let listener = inside("causeway", || {
            use nix::sys::socket::{
                self, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, sockopt,
            };
            use std::os::fd::AsRawFd;
            let fd = socket::socket(
                AddressFamily::Inet6,
                SockType::Stream,
                SockFlag::empty(),
                None,
            )
            .unwrap();
            socket::setsockopt(&fd, sockopt::IpTransparent, &true).unwrap();
            let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PROXY_PORT, 0, 0);
            socket::bind(fd.as_raw_fd(), &SockaddrIn6::from(any)).unwrap();
            socket::listen(&fd, Backlog::new(16).unwrap()).unwrap();
            TcpListener::from(fd)
        });
        let before = lab.drops();
        let client = std::thread::spawn(|| {
            inside("a", || {
                use std::io::Write;
                let mut stream = std::net::TcpStream::connect((address(OUTSIDE), 443)).unwrap();
                stream.write_all(CONTROL).unwrap();
                let mut reply = Vec::new();
                stream.read_to_end(&mut reply).unwrap();
                reply
            })
        });
        let (mut stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), address("a"));
        assert_eq!(stream.local_addr().unwrap().to_string(), "[2a0f::1]:443");
        let mut received = vec![0; CONTROL.len()];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, CONTROL);
        std::io::Write::write_all(&mut stream, CONTROL).unwrap();
        drop(stream);
        assert_eq!(client.join().unwrap(), CONTROL);
        assert!(lab.since(&before).is_empty());
        for frame in lab.host(OUTSIDE).arrived() {
            assert!(!carries(&frame, CONTROL), "past the proxy");
        }
        // From the outside nobody gets to the proxy, not even by the number of its port.
        let router = lab.router_mac.clone();
        let mac = lab.host(OUTSIDE).mac.octets();
        let knock = tcp(
            (address(OUTSIDE), address("a")),
            (5000, PROXY_PORT),
            SYN,
            HOSTILE,
        );
        let offered = udp((address(OUTSIDE), address("d")), (5000, 8000), CONTROL);
        lab.quiet();
        let before = lab.drops();
        for packet in [knock, offered] {
            let bytes = frame(router_octets(&router), mac, 0x86dd, &packet.bytes());
            lab.host(OUTSIDE).send_frame(&bytes);
        }
        lab.host("d").await_frame(|frame| carries(frame, CONTROL));
        let expected = causeway_dataplane::kernel::nft::Drops::from([(
            (lab.uplink, Reason::IngressDenied),
            1,
        )]);
        assert_eq!(lab.moved(&before, &expected), expected);
        // Another tenant's sandbox is not the proxy's business even while it runs.
        let other = tcp(to("c"), (4000, 443), SYN, HOSTILE);
        lab.hostile(&case(
            "TCP to another tenant",
            &other,
            Reason::NoSharedNetwork,
        ));
        drop(listener);
        let again = tcp(to(OUTSIDE), (4002, 443), SYN, HOSTILE);
        lab.hostile(&case("TCP after the proxy died", &again, Reason::ProxyDown));
    });
}
