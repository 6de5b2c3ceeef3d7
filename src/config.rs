//! The configuration file: what is written, what is taken when it is not, and what is refused.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_dataplane::vpp::WATCHDOG;
use causeway_ipam::PrefixPool;
use ipnet::{IpNet, Ipv6Net};
use serde::Deserialize;

/// Where the configuration is looked for when no file is named.
pub const DEFAULT_PATH: &str = "/etc/causeway/causeway.toml";
/// Where what must survive a restart of the machine is kept.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/causeway";
/// Where sockets and locks live.
pub const DEFAULT_RUNTIME_DIR: &str = "/run/causeway";
/// Where VPP listens when nothing else is said.
pub const DEFAULT_VPP_SOCKET: &str = "/run/vpp/api.sock";
/// The API socket inside the runtime directory.
pub const API_SOCKET: &str = "causeway.sock";

const DEFAULT_LEASE_QUARANTINE_SECS: u64 = 300;
const DEFAULT_RECONCILE_SECS: u64 = 30;
const DEFAULT_MTU: u16 = 1500;
/// The longest lease quarantine: a week. More would be a typing error.
const MAX_LEASE_QUARANTINE_SECS: u64 = 7 * 24 * 3600;
const RECONCILE_SECS: std::ops::RangeInclusive<u64> = 1..=3600;
/// RFC 8200 asks 1280 of every link; above 9216 no hardware follows.
const MTU: std::ops::RangeInclusive<u16> = 1280..=9216;
const WATCHDOG_SECS: std::ops::RangeInclusive<u64> = 2..=3600;
const DEFAULT_VPP_SANDBOXES: u32 = 1000;
const MAX_RESOLVERS: usize = 8;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("the configuration file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML, or has a key that is not known or a value of the wrong kind.
    #[error("the configuration file {} is not valid\n{source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, and what was expected. It shows the line itself.
        source: Box<toml::de::Error>,
    },
    /// A value is outside its range.
    #[error("`{key}` is {value}: {expected}")]
    Range {
        /// The key, with its section.
        key: &'static str,
        /// The value, as given.
        value: String,
        /// What is taken.
        expected: &'static str,
    },
    /// The node block is not part of the operator prefix.
    #[error("`address.node_block` {block} does not lie inside `address.prefix` {prefix}")]
    BlockOutside {
        /// The node block.
        block: Ipv6Net,
        /// The operator prefix.
        prefix: Ipv6Net,
    },
    /// A node block was given without the prefix that it belongs to.
    #[error("`address.node_block` is set and `address.prefix` is not: set both or neither")]
    BlockWithoutPrefix,
    /// Two ways to reach the outside were given.
    #[error("`uplink.interface` and `uplink.translate` exclude each other")]
    TwoUplinks,
    /// How to start VPP was said, and not that it is to be started.
    #[error("`{key}` is for a VPP that the agent starts: set `vpp.supervise = true` as well")]
    Unsupervised {
        /// The key, with its section.
        key: &'static str,
    },
    /// Two start-up configurations were given.
    #[error("`vpp.startup` and `vpp.sandboxes` exclude each other: a file has its own sizes")]
    TwoStartups,
}

/// Which dataplane carries the packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// VPP where its socket is configured, and the Linux kernel elsewhere.
    #[default]
    Auto,
    /// The Linux kernel.
    Kernel,
    /// VPP.
    Vpp,
}

/// The VPP of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpp {
    /// Its API.
    pub api: PathBuf,
    /// Its counters.
    pub stats: PathBuf,
    /// Whether guests may share memory with it.
    pub shared_memory: bool,
    /// After this time without an answer it hangs.
    pub watchdog: Duration,
    /// How it is started and kept running, where that is the agent's.
    pub supervise: Option<Supervise>,
}

/// How the agent starts VPP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervise {
    /// The executable; none means the one that is installed.
    pub program: Option<PathBuf>,
    /// Its start-up configuration.
    pub startup: VppStartup,
    /// The folder for what the agent writes: that configuration, and VPP's output.
    pub folder: PathBuf,
}

/// The start-up configuration of a VPP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VppStartup {
    /// A file of the operator's.
    File(PathBuf),
    /// One that the agent writes, for so many sandboxes.
    For(u32),
}

/// How packets of sandboxes leave this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uplink {
    /// Through the host, which has a route to the operator prefix from the outside.
    Routed,
    /// Through the host, which hides the sandboxes behind its own addresses.
    Masquerade,
    /// Through an interface that is handed to Causeway.
    Interface {
        /// Its name.
        name: String,
        /// Addresses that the router takes on it.
        addresses: Vec<IpNet>,
        /// Default gateways, IPv6 and perhaps IPv4.
        gateways: Vec<IpAddr>,
    },
}

/// The checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where what must survive is kept.
    pub state_dir: PathBuf,
    /// Where sockets and locks live.
    pub runtime_dir: PathBuf,
    /// Which dataplane.
    pub backend: BackendChoice,
    /// VPP's API socket, where one is configured.
    pub vpp_socket: Option<PathBuf>,
    /// The socket of VPP's counters; none means `stats.sock` beside the API socket.
    pub vpp_stats: Option<PathBuf>,
    /// Whether guests may share memory with VPP, by vhost-user and memif.
    pub vpp_shared_memory: bool,
    /// After this time without an answer VPP hangs.
    pub vpp_watchdog: Duration,
    /// How VPP is started and kept running, where that is the agent's.
    pub vpp_supervise: Option<Supervise>,
    /// The operator prefix; none means one that is made up at the first start.
    pub prefix: Option<Ipv6Net>,
    /// This node's block inside the prefix; none means the prefix's first /64.
    pub node_block: Option<Ipv6Net>,
    /// Addresses that are never handed out.
    pub exclude: Vec<Ipv6Net>,
    /// Blocks from which sandboxes get prefixes.
    pub prefix_pools: Vec<PrefixPool>,
    /// How long a released address stays unused.
    pub lease_quarantine: Duration,
    /// The way out; none means masquerade for a made-up prefix and routed for a given one.
    pub uplink: Option<Uplink>,
    /// The MTU of sandbox interfaces, in bytes.
    pub mtu: u16,
    /// Where the proxy's resolver asks; empty means what the host uses.
    pub resolvers: Vec<SocketAddr>,
    /// PEM files with roots that the proxy trusts besides the system's.
    pub extra_roots: Vec<PathBuf>,
    /// Where the proxy writes its audit log; none means `<state_dir>/audit.jsonl`.
    pub audit_log: Option<PathBuf>,
    /// Time between two checks that reality is as desired.
    pub reconcile_interval: Duration,
}

impl Config {
    /// Reads `path`, or the default file where it exists, or takes the defaults.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let (path, required) = match path {
            Some(path) => (path, true),
            None => (Path::new(DEFAULT_PATH), false),
        };
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => {
                Self::check(File::default())
            }
            Err(source) => Err(ConfigError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Parses and checks the text of a configuration file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = toml::from_str(text).map_err(|source| ConfigError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Self::check(file)
    }

    /// The API socket.
    pub fn api_socket(&self) -> PathBuf {
        self.runtime_dir.join(API_SOCKET)
    }

    /// VPP, on a node whose dataplane is VPP.
    pub fn vpp(&self) -> Option<Vpp> {
        let api = match self.backend {
            BackendChoice::Kernel => return None,
            BackendChoice::Auto => self.vpp_socket.clone()?,
            BackendChoice::Vpp => self
                .vpp_socket
                .clone()
                .unwrap_or_else(|| DEFAULT_VPP_SOCKET.into()),
        };
        let stats = self
            .vpp_stats
            .clone()
            .unwrap_or_else(|| api.with_file_name("stats.sock"));
        Some(Vpp {
            api,
            stats,
            shared_memory: self.vpp_shared_memory,
            watchdog: self.vpp_watchdog,
            supervise: self.vpp_supervise.clone(),
        })
    }

    /// The proxy's control socket.
    pub fn egress_socket(&self) -> PathBuf {
        self.runtime_dir.join("egress.sock")
    }

    /// The store.
    pub fn store_path(&self) -> PathBuf {
        self.state_dir.join("causeway.redb")
    }

    /// The key that secrets are encrypted under.
    pub fn key_path(&self) -> PathBuf {
        self.state_dir.join("key")
    }

    /// The audit log.
    pub fn audit_path(&self) -> PathBuf {
        self.audit_log
            .clone()
            .unwrap_or_else(|| self.state_dir.join("audit.jsonl"))
    }

    fn check(file: File) -> Result<Self, ConfigError> {
        let address = file.address;
        check_prefix(address.prefix, address.node_block)?;
        check_range(
            "address.lease_quarantine_secs",
            address.lease_quarantine_secs,
            &(0..=MAX_LEASE_QUARANTINE_SECS),
            "0 to 604800 seconds are taken",
        )?;
        check_range(
            "reconcile_interval_secs",
            file.reconcile_interval_secs,
            &RECONCILE_SECS,
            "1 to 3600 seconds are taken",
        )?;
        check_range("mtu", file.mtu, &MTU, "1280 to 9216 bytes are taken")?;
        if file.egress.resolvers.len() > MAX_RESOLVERS {
            return Err(ConfigError::Range {
                key: "egress.resolvers",
                value: format!("a list of {}", file.egress.resolvers.len()),
                expected: "at most 8 are taken",
            });
        }
        check_range(
            "vpp.watchdog_secs",
            file.vpp.watchdog_secs,
            &WATCHDOG_SECS,
            "2 to 3600 seconds are taken",
        )?;
        let vpp_supervise = check_supervise(&file.vpp, &file.runtime_dir)?;
        let uplink = match (file.uplink.interface, file.uplink.translate) {
            (Some(_), Some(_)) => return Err(ConfigError::TwoUplinks),
            (Some(name), None) => Some(Uplink::Interface {
                name,
                addresses: file.uplink.addresses,
                gateways: file.uplink.gateways,
            }),
            (None, Some(Translate::Masquerade)) => Some(Uplink::Masquerade),
            (None, Some(Translate::Routed)) => Some(Uplink::Routed),
            (None, None) => None,
        };
        Ok(Self {
            state_dir: file.state_dir,
            runtime_dir: file.runtime_dir,
            backend: file.backend,
            vpp_socket: file.vpp.socket,
            vpp_stats: file.vpp.stats,
            vpp_shared_memory: file.vpp.shared_memory,
            vpp_watchdog: Duration::from_secs(file.vpp.watchdog_secs),
            vpp_supervise,
            prefix: address.prefix,
            node_block: address.node_block,
            exclude: address.exclude,
            prefix_pools: address
                .prefix_pools
                .into_iter()
                .map(|pool| PrefixPool {
                    block: pool.block,
                    length: pool.length,
                })
                .collect(),
            lease_quarantine: Duration::from_secs(address.lease_quarantine_secs),
            uplink,
            mtu: file.mtu,
            resolvers: file
                .egress
                .resolvers
                .into_iter()
                .map(Resolver::into_address)
                .collect(),
            extra_roots: file.egress.extra_roots,
            audit_log: file.egress.audit_log,
            reconcile_interval: Duration::from_secs(file.reconcile_interval_secs),
        })
    }
}

fn check_prefix(prefix: Option<Ipv6Net>, block: Option<Ipv6Net>) -> Result<(), ConfigError> {
    let Some(prefix) = prefix else {
        return match block {
            Some(_) => Err(ConfigError::BlockWithoutPrefix),
            None => Ok(()),
        };
    };
    if prefix != prefix.trunc() {
        return Err(ConfigError::Range {
            key: "address.prefix",
            value: prefix.to_string(),
            expected: "the bits after the prefix length must be zero",
        });
    }
    match block {
        Some(block) if !prefix.contains(&block) => Err(ConfigError::BlockOutside { block, prefix }),
        Some(block) if block != block.trunc() => Err(ConfigError::Range {
            key: "address.node_block",
            value: block.to_string(),
            expected: "the bits after the prefix length must be zero",
        }),
        _ => Ok(()),
    }
}

fn check_supervise(vpp: &VppSection, folder: &Path) -> Result<Option<Supervise>, ConfigError> {
    let given = [
        ("vpp.program", vpp.program.is_some()),
        ("vpp.startup", vpp.startup.is_some()),
        ("vpp.sandboxes", vpp.sandboxes.is_some()),
    ];
    if !vpp.supervise {
        return match given.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(ConfigError::Unsupervised { key }),
            None => Ok(None),
        };
    }
    let socket = vpp
        .socket
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_VPP_SOCKET));
    let startup = match (&vpp.startup, vpp.sandboxes) {
        (Some(_), Some(_)) => return Err(ConfigError::TwoStartups),
        (Some(file), None) => VppStartup::File(file.clone()),
        // What the agent writes has the socket under this name.
        (None, _) if !socket.ends_with("api.sock") => {
            return Err(ConfigError::Range {
                key: "vpp.socket",
                value: socket.display().to_string(),
                expected: "without `vpp.startup` it has to be named api.sock",
            });
        }
        (None, sandboxes) => VppStartup::For(sandboxes.unwrap_or(DEFAULT_VPP_SANDBOXES)),
    };
    Ok(Some(Supervise {
        program: vpp.program.clone(),
        startup,
        folder: folder.to_owned(),
    }))
}

fn check_range<T: PartialOrd + ToString + Copy>(
    key: &'static str,
    value: T,
    range: &std::ops::RangeInclusive<T>,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::Range {
        key,
        value: value.to_string(),
        expected,
    })
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    state_dir: PathBuf,
    runtime_dir: PathBuf,
    backend: BackendChoice,
    mtu: u16,
    reconcile_interval_secs: u64,
    address: AddressSection,
    uplink: UplinkSection,
    egress: EgressSection,
    vpp: VppSection,
}

impl Default for File {
    fn default() -> Self {
        Self {
            state_dir: DEFAULT_STATE_DIR.into(),
            runtime_dir: DEFAULT_RUNTIME_DIR.into(),
            backend: BackendChoice::default(),
            mtu: DEFAULT_MTU,
            reconcile_interval_secs: DEFAULT_RECONCILE_SECS,
            address: AddressSection::default(),
            uplink: UplinkSection::default(),
            egress: EgressSection::default(),
            vpp: VppSection::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AddressSection {
    prefix: Option<Ipv6Net>,
    node_block: Option<Ipv6Net>,
    exclude: Vec<Ipv6Net>,
    prefix_pools: Vec<PoolSection>,
    lease_quarantine_secs: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolSection {
    block: Ipv6Net,
    length: u8,
}

impl Default for AddressSection {
    fn default() -> Self {
        Self {
            prefix: None,
            node_block: None,
            exclude: Vec::new(),
            prefix_pools: Vec::new(),
            lease_quarantine_secs: DEFAULT_LEASE_QUARANTINE_SECS,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UplinkSection {
    translate: Option<Translate>,
    interface: Option<String>,
    addresses: Vec<IpNet>,
    gateways: Vec<IpAddr>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Translate {
    Masquerade,
    Routed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EgressSection {
    resolvers: Vec<Resolver>,
    extra_roots: Vec<PathBuf>,
    audit_log: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct VppSection {
    socket: Option<PathBuf>,
    stats: Option<PathBuf>,
    shared_memory: bool,
    watchdog_secs: u64,
    supervise: bool,
    program: Option<PathBuf>,
    startup: Option<PathBuf>,
    sandboxes: Option<u32>,
}

impl Default for VppSection {
    fn default() -> Self {
        Self {
            socket: None,
            stats: None,
            shared_memory: false,
            watchdog_secs: WATCHDOG.as_secs(),
            supervise: false,
            program: None,
            startup: None,
            sandboxes: None,
        }
    }
}

/// An address with a port, or without: then 53 is meant.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "an address such as 2001:db8::53 or [2001:db8::53]:5353"
)]
enum Resolver {
    WithPort(SocketAddr),
    Address(IpAddr),
}

impl Resolver {
    fn into_address(self) -> SocketAddr {
        match self {
            Self::WithPort(address) => address,
            Self::Address(ip) => SocketAddr::new(ip, 53),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("causeway.toml"), text)
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.state_dir, Path::new("/var/lib/causeway"));
        assert_eq!(config.lease_quarantine, Duration::from_secs(300));
        assert_eq!(config.uplink, None);
    }

    #[test]
    fn every_key_is_taken() {
        let config = parse(
            r#"
            state_dir = "/s"
            runtime_dir = "/r"
            backend = "kernel"
            mtu = 1420
            reconcile_interval_secs = 5
            [address]
            prefix = "2001:db8::/48"
            node_block = "2001:db8:0:7::/64"
            exclude = ["2001:db8:0:7::/112"]
            lease_quarantine_secs = 0
            prefix_pools = [{ block = "2001:db8:0:100::/56", length = 64 }]
            [uplink]
            interface = "eth1"
            addresses = ["2001:db8:1::2/64"]
            gateways = ["2001:db8:1::1"]
            [egress]
            resolvers = ["192.0.2.53", "[2001:db8::53]:5353"]
            extra_roots = ["/etc/roots.pem"]
            audit_log = "/var/log/audit.jsonl"
            [vpp]
            socket = "/v/api.sock"
            stats = "/v/stats.sock"
            shared_memory = true
            watchdog_secs = 60
            supervise = true
            program = "/v/vpp"
            startup = "/v/startup.conf"
            "#,
        )
        .unwrap();
        assert_eq!(config.vpp(), None, "the kernel was asked for");
        assert_eq!(
            config.uplink,
            Some(Uplink::Interface {
                name: "eth1".into(),
                addresses: vec!["2001:db8:1::2/64".parse().unwrap()],
                gateways: vec!["2001:db8:1::1".parse().unwrap()],
            })
        );
        assert_eq!(config.resolvers[0], "192.0.2.53:53".parse().unwrap());
        assert_eq!(config.resolvers[1].port(), 5353);
        assert_eq!(config.api_socket(), Path::new("/r/causeway.sock"));
    }

    #[test]
    fn vpp_is_taken_where_it_is_asked_for_or_configured() {
        let sockets = |text: &str| parse(text).unwrap().vpp();
        assert_eq!(sockets(""), None);
        let default = sockets("backend = \"vpp\"").unwrap();
        assert_eq!(default.api, Path::new(DEFAULT_VPP_SOCKET));
        let configured = sockets("[vpp]\nsocket = \"/v/api.sock\"").unwrap();
        assert_eq!(configured.stats, Path::new("/v/stats.sock"));
        assert!(!configured.shared_memory, "only where it is asked for");
        assert_eq!(configured.supervise, None);
        let started = sockets("backend = \"vpp\"\n[vpp]\nsupervise = true\nsandboxes = 7").unwrap();
        assert_eq!(started.supervise.unwrap().startup, VppStartup::For(7));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = parse("mtu = 1500\n[uplink]\ntranslat = \"routed\"").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("translat"), "{text}");
        assert!(text.contains("line 3"), "{text}");
    }

    #[test]
    fn values_out_of_range_name_key_and_range() {
        for (text, part) in [
            ("mtu = 1279", "`mtu` is 1279"),
            ("reconcile_interval_secs = 0", "1 to 3600"),
            ("[address]\nprefix = \"2001:db8::1/48\"", "must be zero"),
            (
                "[address]\nprefix = \"2001:db8::/48\"\nnode_block = \"2001:db9::/64\"",
                "does not lie inside",
            ),
            ("[address]\nnode_block = \"2001:db9::/64\"", "set both"),
            (
                "[uplink]\ninterface = \"a\"\ntranslate = \"routed\"",
                "exclude each other",
            ),
            ("[vpp]\nwatchdog_secs = 1", "2 to 3600"),
            ("[vpp]\nstartup = \"/s\"", "vpp.supervise = true"),
            (
                "[vpp]\nsupervise = true\nstartup = \"/s\"\nsandboxes = 7",
                "exclude each other",
            ),
            (
                "[vpp]\nsupervise = true\nsocket = \"/v/x.sock\"",
                "named api.sock",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(parse("mtu = 1280").is_ok());
    }
}
