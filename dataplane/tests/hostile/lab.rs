//! A router namespace, sandboxes and an outside, all in namespaces that end with the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use causeway_dataplane::elements::{Element, ElementChanges, GroupId, PortRef};
use causeway_dataplane::kernel::nft::{Drops, Filter};
use causeway_dataplane::kernel::{KernelConfig, Uplink};
use causeway_dataplane::{Attachment, Firewall, InterfaceName, Mtu, SandboxSpec};
use causeway_types::{Labels, MacAddress, Reason, SandboxId, SandboxName, SandboxUid, TenantName};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use smoltcp::phy::{Device, Medium, RawSocket, RxToken, TxToken, wait};
use smoltcp::time::Instant;
use tokio::runtime::{Builder, Runtime};

use super::forwarder::{self, Forwarder};
use super::packet::{Packet, frame};

const ROUTER: &str = "causeway";
const UPLINK: &str = "up0";
const OUTSIDE_ADDRESS: &str = "2a0f::1";
const ROUTER_ADDRESS: &str = "2a0f::ff";
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `body` in network and mount namespaces of its own, which end with it.
pub(crate) fn isolated(body: impl FnOnce() + Send + 'static) {
    let test = causeway_testing::test_name();
    if let Err(reason) = forwarder::available() {
        causeway_testing::skip(&test, &reason);
        return;
    }
    let thread = std::thread::spawn(move || {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
            causeway_testing::skip(
                &test,
                &format!("needs the right to make namespaces ({errno})"),
            );
            return;
        }
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        for folder in ["/run", "/dev/shm"] {
            mount(Some("lab"), folder, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        }
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `body` in a named network namespace. Sockets that it returns stay there.
pub(crate) fn inside<T: Send + 'static>(
    namespace: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        body()
    });
    thread.join().unwrap()
}

fn ip(script: &str) {
    let mut child = Command::new("ip")
        .args(["-6", "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

fn ip_in(namespace: &str, script: String) {
    inside(namespace, move || ip(&script));
}

/// One end of the lab: a sandbox, or the outside.
pub(crate) struct Host {
    pub(crate) mac: MacAddress,
    pub(crate) index: u32,
    socket: RawSocket,
}

impl Host {
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        self.mac.link_local()
    }

    /// Sends a frame as it is.
    pub(crate) fn send_frame(&mut self, bytes: &[u8]) {
        let token = self.socket.transmit(Instant::now()).unwrap();
        token.consume(bytes.len(), |buffer| buffer.copy_from_slice(bytes));
    }

    /// Sends a packet to the router.
    pub(crate) fn send(&mut self, packet: &Packet) {
        let bytes = frame(
            MacAddress::GATEWAY.octets(),
            self.mac.octets(),
            0x86dd,
            &packet.bytes(),
        );
        self.send_frame(&bytes);
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (token, _) = self.socket.receive(Instant::now())?;
        Some(token.consume(<[u8]>::to_vec))
    }

    /// Everything that has arrived, without what this host sent itself.
    pub(crate) fn arrived(&mut self) -> Vec<Vec<u8>> {
        let own = self.mac.octets();
        std::iter::from_fn(|| self.receive())
            .filter(|frame| frame.get(6..12) != Some(&own))
            .collect()
    }

    /// Waits for a frame that `wanted` says yes to; returns all that came until then.
    pub(crate) fn await_frame(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let deadline = Clock::now() + PATIENCE;
        let mut seen = Vec::new();
        while Clock::now() < deadline {
            for frame in self.arrived() {
                let found = wanted(&frame);
                seen.push(frame);
                if found {
                    return seen;
                }
            }
            let pause = smoltcp::time::Duration::from_millis(50);
            wait(self.socket.as_raw_fd(), Some(pause)).unwrap();
        }
        panic!(
            "nothing came that was waited for; {} other frames",
            seen.len()
        );
    }
}

/// Has the router give up on incomplete packets after a second.
pub(crate) fn hasten_reassembly() {
    inside(ROUTER, || {
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_frag6_timeout", "1").unwrap();
    });
}

/// Whether a frame carries these bytes.
pub(crate) fn carries(frame: &[u8], tag: &[u8]) -> bool {
    frame.windows(tag.len()).any(|window| window == tag)
}

/// The lab.
pub(crate) struct Lab {
    pub(crate) filter: Filter,
    pub(crate) hosts: BTreeMap<&'static str, Host>,
    pub(crate) uplink: u32,
    pub(crate) router_mac: String,
    runtime: Runtime,
    forwarder: Forwarder,
}

pub(crate) const OUTSIDE: &str = "outside";

pub(crate) fn address(name: &str) -> Ipv6Addr {
    let text = match name {
        OUTSIDE => OUTSIDE_ADDRESS.to_owned(),
        letter => format!("2a0e:1:2::{letter}"),
    };
    text.parse().unwrap()
}

impl Lab {
    /// Builds a router with one port for each name, and the outside on its uplink.
    pub(crate) fn new(names: &[&'static str]) -> Self {
        for name in names.iter().chain(&[OUTSIDE]) {
            let made = Command::new("ip")
                .args(["netns", "add", name])
                .status()
                .unwrap();
            assert!(made.success());
        }
        ip(&format!(
            "link add {UPLINK} type veth peer name eth0 netns {OUTSIDE}\n"
        ));
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let forwarder = Forwarder::start(config());
        runtime.block_on(forwarder.backend().setup()).unwrap();
        let filter = inside(ROUTER, || Filter::open().unwrap());
        let router_mac = inside(ROUTER, || read_mac(UPLINK));
        ip_in(
            OUTSIDE,
            format!(
                "link set eth0 addrgenmode none up\naddr add {OUTSIDE_ADDRESS}/64 dev eth0 nodad\n\
                 addr add fe80::99/64 dev eth0 nodad\n\
                 neigh replace {ROUTER_ADDRESS} lladdr {router_mac} dev eth0 nud permanent\n\
                 route add default via {ROUTER_ADDRESS} dev eth0\n"
            ),
        );
        let outside = Host {
            mac: inside(OUTSIDE, || read_mac("eth0")).parse().unwrap(),
            index: 0,
            socket: socket(OUTSIDE),
        };
        let mut lab = Self {
            uplink: index(UPLINK.to_owned()),
            hosts: BTreeMap::from([(OUTSIDE, outside)]),
            filter,
            router_mac,
            runtime,
            forwarder,
        };
        for name in names {
            lab.attach(name);
        }
        lab
    }

    fn attach(&mut self, name: &'static str) {
        let spec = spec(name);
        let backend = self.forwarder.backend();
        self.runtime.block_on(backend.attach(&spec)).unwrap();
        let source = |address| Element::Source {
            port: PortRef::Sandbox(spec.uid),
            address,
        };
        self.add(&[source(spec.address), source(spec.link_local())]);
        let host = Host {
            mac: spec.mac(),
            index: index(format!("cw{}", spec.uid)),
            socket: socket(name),
        };
        self.hosts.insert(name, host);
    }

    pub(crate) fn host(&mut self, name: &str) -> &mut Host {
        self.hosts.get_mut(name).unwrap()
    }

    pub(crate) fn group(&mut self, name: &str, number: u32) {
        self.add(&[Element::Group {
            address: address(name),
            group: GroupId(number),
        }]);
    }

    pub(crate) fn add(&mut self, elements: &[Element]) {
        self.change(elements, &[]);
    }

    pub(crate) fn change(&mut self, add: &[Element], remove: &[Element]) {
        let changes = ElementChanges {
            add: add.to_vec(),
            remove: remove.to_vec(),
        };
        let backend = self.forwarder.backend();
        self.runtime.block_on(backend.apply(&changes)).unwrap();
    }

    /// Empties a set without the backend's knowledge.
    pub(crate) fn flush(set: &'static str) {
        let status = inside(ROUTER, move || {
            Command::new("nft")
                .args(["flush", "set", "inet", "causeway", set])
                .status()
        });
        assert!(status.unwrap().success());
    }

    /// Waits until flows are stamped again.
    pub(crate) fn await_epoch(&mut self) {
        let deadline = Clock::now() + PATIENCE;
        while self.filter.epoch().unwrap().is_none() {
            assert!(Clock::now() < deadline, "no new epoch begins");
            std::thread::yield_now();
        }
    }

    pub(crate) fn drops(&mut self) -> Drops {
        self.filter.drops().unwrap()
    }

    /// What was added to the ledger since.
    pub(crate) fn since(&mut self, before: &Drops) -> Drops {
        let mut now = self.drops();
        for (key, count) in before {
            if let Some(value) = now.get_mut(key) {
                *value -= count;
            }
        }
        now.retain(|_, count| *count > 0);
        now
    }

    /// What was added to the ledger, once it is as expected or time is up: a forwarder may
    /// take one packet another way than the next.
    pub(crate) fn moved(&mut self, before: &Drops, expected: &Drops) -> Drops {
        let deadline = Clock::now() + PATIENCE;
        loop {
            let moved = self.since(before);
            if moved == *expected || Clock::now() > deadline {
                return moved;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the control at `name`: no hostile packet comes with it.
    pub(crate) fn control_alone(&mut self, name: &str) {
        let host = self.host(name);
        let mut seen = host.await_frame(|frame| carries(frame, CONTROL));
        seen.extend(host.arrived());
        assert!(seen.iter().all(|frame| !carries(frame, HOSTILE)), "{name}");
    }

    /// What the backend counts under a reason for a sandbox.
    pub(crate) fn count(&self, name: &str, reason: Reason) -> u64 {
        let backend = self.forwarder.backend();
        let counters = self.runtime.block_on(backend.counters()).unwrap();
        let sandbox = &counters.sandboxes[&spec(name).uid];
        sandbox.drops.get(&reason).copied().unwrap_or(0)
    }

    /// Waits until the backend counts as many drops.
    pub(crate) fn await_count(&self, name: &str, reason: Reason, expected: u64) {
        let deadline = Clock::now() + PATIENCE;
        while self.count(name, reason) < expected && Clock::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.count(name, reason), expected);
    }

    /// Forgets what arrived so far.
    pub(crate) fn quiet(&mut self) {
        for host in self.hosts.values_mut() {
            host.arrived();
        }
    }

    /// Sends the hostile packets and then the control, and waits for the control. The control
    /// arrives, none of the hostile packets does, and the ledger moves by `expected` alone.
    pub(crate) fn hostile(&mut self, case: &Case<'_>) {
        self.quiet();
        let before = self.drops();
        let from = self.host(case.from);
        let key = (from.index, case.reason);
        for bytes in &case.frames {
            from.send_frame(bytes);
        }
        from.send(&case.control);
        let until = self
            .host(case.control_at)
            .await_frame(|frame| carries(frame, CONTROL));
        let passed = until.iter().any(|frame| carries(frame, HOSTILE));
        assert!(!passed, "{}: arrived at {}", case.name, case.control_at);
        let expected = Drops::from([(key, case.count)]);
        let moved = self.moved(&before, &expected);
        assert_eq!(moved, expected, "{}", case.name);
        for (name, host) in &mut self.hosts {
            for frame in host.arrived() {
                assert!(
                    !carries(&frame, HOSTILE) || *name == case.from,
                    "{}: arrived at {name}",
                    case.name
                );
            }
        }
    }
}

/// What hostile packets and controls carry.
pub(crate) const HOSTILE: &[u8] = b"hostile-payload!";
pub(crate) const CONTROL: &[u8] = b"control-payload!";

/// One hostile attempt beside its control.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) from: &'a str,
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) reason: Reason,
    pub(crate) count: u64,
    pub(crate) control: Packet,
    pub(crate) control_at: &'a str,
}

fn config() -> KernelConfig {
    KernelConfig {
        operator_prefixes: vec!["2a0e:1:2::/48".parse().unwrap()],
        own_prefixes: vec!["2a0c:5::/32".parse().unwrap()],
        uplink: Uplink::Interface {
            name: InterfaceName::new(UPLINK).unwrap(),
            addresses: vec![format!("{ROUTER_ADDRESS}/64").parse().unwrap()],
            gateways: vec![OUTSIDE_ADDRESS.parse().unwrap()],
        },
        ..KernelConfig::default()
    }
}

fn spec(name: &str) -> SandboxSpec {
    let address = address(name);
    SandboxSpec {
        uid: SandboxUid::from_random(0xabc0 + u64::from(address.segments()[7])),
        id: SandboxId::new(
            TenantName::new("t").unwrap(),
            SandboxName::new(name).unwrap(),
        ),
        address,
        prefix: None,
        attachment: Attachment::Netns {
            path: format!("/run/netns/{name}").into(),
            interface: InterfaceName::new("eth0").unwrap(),
        },
        mtu: Mtu::default(),
        networks: BTreeSet::new(),
        labels: Labels::default(),
        firewall: Arc::new(Firewall::default()),
        quarantined: false,
    }
}

fn index(interface: String) -> u32 {
    inside(ROUTER, move || {
        nix::net::if_::if_nametoindex(interface.as_str()).unwrap()
    })
}

fn read_mac(interface: &str) -> String {
    let output = Command::new("ip")
        .args(["-br", "link", "show", "dev", interface])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().nth(2).unwrap().to_owned()
}

/// Opens a packet socket in a namespace. It stays with this thread, which goes there and back.
fn socket(namespace: &str) -> RawSocket {
    let home = File::open("/proc/thread-self/ns/net").unwrap();
    let there = File::open(format!("/run/netns/{namespace}")).unwrap();
    setns(there, CloneFlags::CLONE_NEWNET).unwrap();
    let socket = RawSocket::new("eth0", Medium::Ethernet).unwrap();
    setns(home, CloneFlags::CLONE_NEWNET).unwrap();
    socket
}
