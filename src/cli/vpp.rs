//! `causeway vpp`: what a node needs whose dataplane is VPP.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde_json::json;
use vpp_config::startup::{self, Startup};

use super::CliError;
use super::output::Output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print a start-up configuration for VPP, sized for this node, with the reason of each size.
    Config(Config),
}

impl Command {
    pub(crate) fn run(self, output: Output) -> Result<(), CliError> {
        let Self::Config(arguments) = self;
        arguments.run(output)
    }
}

/// What the node's VPP is for.
#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    /// How many sandboxes there may be at a time.
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sandboxes: u32,
    /// Threads that forward, besides the main one. With none, the main thread does.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "worker_cores"
    )]
    workers: u16,
    /// The core of the main thread.
    #[arg(long, value_name = "CORE")]
    main_core: Option<u16>,
    /// The cores of the workers, one worker each, such as 2,3,4.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    worker_cores: Vec<u16>,
    /// The size of the huge pages that are set aside for VPP. Network cards need them.
    #[arg(long, value_enum, value_name = "SIZE")]
    hugepages: Option<Pages>,
    /// A network card for VPP to drive through DPDK, by its address, such as 0000:3b:00.0 or
    /// 0000:3b:00.0=uplink. May be given again.
    #[arg(long, value_name = "PCI[=NAME]")]
    device: Vec<Device>,
    /// A plugin to load besides those that Causeway uses, such as `lcp`. May be given again.
    #[arg(long, value_name = "NAME")]
    plugin: Vec<String>,
    /// Where VPP's plugins are, if not where it was installed.
    #[arg(long, value_name = "FOLDER")]
    plugin_path: Option<PathBuf>,
    /// Where VPP's sockets go.
    #[arg(long, value_name = "FOLDER", default_value = "/run/vpp")]
    runtime_dir: PathBuf,
    /// The group that may use the sockets, beside root.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Where VPP writes its log. Without it, to the system's log.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// How long the main thread sleeps between two looks, in microseconds: saves a core on a small
    /// node and adds as much latency.
    #[arg(long, value_name = "MICROSECONDS",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    poll_sleep: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pages {
    #[value(name = "2M")]
    Mb2,
    #[value(name = "1G")]
    Gb1,
}

/// A card and its name. Whether the address is one is checked with everything else.
#[derive(Debug, Clone)]
struct Device {
    pci: String,
    name: Option<String>,
}

impl FromStr for Device {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pci, name) = match text.split_once('=') {
            Some((pci, name)) => (pci, Some(name.to_owned())),
            None => (text, None),
        };
        Ok(Self {
            pci: pci.to_owned(),
            name,
        })
    }
}

impl Config {
    fn run(self, output: Output) -> Result<(), CliError> {
        let startup = self.startup();
        let text = startup.render()?;
        let sizes = startup.sizes();
        let shown = json!({
            "config": text,
            "heap_bytes": sizes.heap,
            "stats_bytes": sizes.stats,
            "buffers": sizes.buffers,
            "hugepages_bytes": sizes.huge,
            "api_socket": startup.api_socket(),
            "stats_socket": startup.stats_socket(),
        });
        output.show(&shown, |_| text.clone())
    }

    fn startup(self) -> Startup {
        let device = |device: Device| startup::DpdkDevice {
            pci: device.pci,
            name: device.name,
            rx_queues: 0,
        };
        Startup {
            sandboxes: self.sandboxes,
            main_core: self.main_core,
            workers: self.workers,
            worker_cores: self.worker_cores,
            hugepages: self.hugepages.map(|pages| match pages {
                Pages::Mb2 => startup::HugePages::Mb2,
                Pages::Gb1 => startup::HugePages::Gb1,
            }),
            dpdk: self.device.into_iter().map(device).collect(),
            plugins: self.plugin,
            plugin_path: self.plugin_path,
            runtime_dir: self.runtime_dir,
            group: self.group,
            log: self.log,
            poll_sleep_usec: self.poll_sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        config: Config,
    }

    fn startup(arguments: &[&str]) -> Startup {
        Line::try_parse_from([&["config"], arguments].concat())
            .unwrap()
            .config
            .startup()
    }

    #[test]
    fn without_arguments_it_is_the_library_s_default() {
        assert_eq!(startup(&[]), Startup::default());
    }

    #[test]
    fn each_argument_has_its_place() {
        let given = startup(&[
            "--sandboxes=7",
            "--main-core=1",
            "--worker-cores=2,3",
            "--hugepages=1G",
            "--device=0000:3b:00.0=uplink",
            "--device=0000:3b:00.1",
            "--plugin=lcp",
            "--plugin-path=/p",
            "--runtime-dir=/r",
            "--group=vpp",
            "--log=/l",
            "--poll-sleep=100",
        ]);
        let card = |pci: &str, name: Option<&str>| startup::DpdkDevice {
            pci: pci.to_owned(),
            name: name.map(ToOwned::to_owned),
            rx_queues: 0,
        };
        let expected = Startup {
            sandboxes: 7,
            main_core: Some(1),
            worker_cores: vec![2, 3],
            workers: 0,
            hugepages: Some(startup::HugePages::Gb1),
            dpdk: vec![
                card("0000:3b:00.0", Some("uplink")),
                card("0000:3b:00.1", None),
            ],
            plugins: vec!["lcp".to_owned()],
            plugin_path: Some("/p".into()),
            runtime_dir: "/r".into(),
            group: Some("vpp".to_owned()),
            log: Some("/l".into()),
            poll_sleep_usec: Some(100),
        };
        assert_eq!(given, expected);
        let text = given.render().unwrap();
        assert!(text.contains("0000:3b:00.0"), "{text}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let refused = startup(&["--hugepages=2M", "--device=eth0"]).render();
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("eth0") && said.contains("0000:3b:00.0"),
            "{said}"
        );
        assert!(Line::try_parse_from(["config", "--sandboxes=0"]).is_err());
        let both = ["config", "--workers=2", "--worker-cores=1,2"];
        assert!(Line::try_parse_from(both).is_err());
    }
}
