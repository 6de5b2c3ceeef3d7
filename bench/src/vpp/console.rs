//! VPP's debug console, and its counters of what each node of its graph costs.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, ensure};
use tokio::runtime::Handle;
use vpp_config::messages::Request;
use vpp_config::messages::vlib::CliInband;
use vpp_config::wire::VarText;
use vpp_config::{Client, Needs, Options};

/// A connection of our own to VPP.
#[derive(Debug)]
pub(crate) struct Console {
    client: Client,
    runtime: Handle,
}

impl Console {
    /// Connects.
    pub(crate) fn open(runtime: Handle, socket: &Path) -> anyhow::Result<Self> {
        let needs = Needs::new().require::<CliInband>();
        let connecting = Client::connect(socket, Options::default(), needs);
        let client = runtime.block_on(connecting)?;
        Ok(Self { client, runtime })
    }

    /// Runs a command, and returns what it says.
    pub(crate) fn run(&self, command: &str) -> anyhow::Result<String> {
        let request = CliInband {
            cmd: VarText::new(command),
        };
        Ok(self.call(&request)?.reply.to_str().into_owned())
    }

    /// Asks for something.
    pub(crate) fn call<R: Request>(&self, request: &R) -> anyhow::Result<R::Reply> {
        Ok(self.runtime.block_on(self.client.call(request))?)
    }
}

/// What one node did.
#[derive(Debug, Clone, PartialEq)]
struct Node {
    name: String,
    packets: f64,
    /// For each packet.
    clocks: f64,
    per_call: f64,
}

impl Node {
    /// Reads a line of `show runtime`; none for what is no node, or saw no packet.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The state, behind the name, is of one or two words.
        let [name, .., _calls, packets, _suspends, clocks, per_call] = words.as_slice() else {
            return None;
        };
        let node = Self {
            name: (*name).to_owned(),
            packets: packets.parse().ok()?,
            clocks: clocks.parse().ok()?,
            per_call: per_call.parse().ok()?,
        };
        (node.packets > 0.0).then_some(node)
    }

    /// Whether it is the interfaces' own, and most of its time the kernel's.
    fn is_device(&self) -> bool {
        self.name.ends_with("-input") && self.name.starts_with("af-packet")
            || self.name.ends_with("-tx")
    }
}

/// What all nodes did in one run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Runtime {
    nodes: Vec<Node>,
    packets: f64,
}

impl Runtime {
    /// Reads what `show runtime` says.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let nodes: Vec<Node> = text.lines().filter_map(Node::parse).collect();
        let routed = |node: &&Node| node.name == "ip6-lookup";
        let packets = nodes.iter().find(routed).map(|node| node.packets);
        let packets = packets.with_context(|| format!("nothing was routed: {text}"))?;
        ensure!(packets > 1000.0, "only {packets} packets were routed");
        Ok(Self { nodes, packets })
    }

    /// Clocks of VPP's graph for each packet that was routed, without the interfaces' own.
    pub(crate) fn clocks(&self) -> f64 {
        self.sum(|node| !node.is_device())
    }

    /// The same with those.
    pub(crate) fn clocks_with_io(&self) -> f64 {
        self.sum(|_| true)
    }

    /// The nodes that saw packets of the flow.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let of_the_flow = |node: &&Node| node.packets > self.packets / 2.0;
        self.nodes
            .iter()
            .filter(of_the_flow)
            .map(|node| node.name.as_str())
            .collect()
    }

    fn sum(&self, counted: impl Fn(&Node) -> bool) -> f64 {
        let clocks = self.nodes.iter().filter(|node| counted(node));
        clocks.map(|node| node.clocks * node.packets).sum::<f64>() / self.packets
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let share = node.clocks * node.packets / self.packets;
            if share >= 1.0 {
                let name = &node.name;
                let per_call = node.per_call;
                writeln!(
                    f,
                    "  {name:32} {share:8.0} clocks, {per_call:.1} packets a call"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Time 1.0, 10 sec internal node vector rate 1.00 loops/sec 100.00
             Name                 State         Calls          Vectors        Suspends         Clocks       Vectors/Call
af-packet-input             interrupt wa             100            2000               0          1.00e3           20.00
api-rx-from-ring              any wait                 0               0               3          2.00e4            0.00
host-cv01-tx                    active               100            2000               0          2.00e3           20.00
ip6-lookup                      active               100            2000               0          5.00e1           20.00
ip6-rewrite                     active               100            2000               0          2.50e1           20.00
";

    #[test]
    fn nodes_are_read_as_vpp_writes_them() {
        let runtime = Runtime::parse(TEXT).unwrap();
        assert_eq!(runtime.nodes.len(), 4);
        assert!((runtime.clocks_with_io() - 3075.0).abs() < 0.1);
        assert!((runtime.clocks() - 75.0).abs() < 0.1);
        assert_eq!(runtime.names().len(), 4);
        assert!(Runtime::parse("").is_err());
    }
}
