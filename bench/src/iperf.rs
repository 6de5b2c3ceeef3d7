//! One run of iperf3 between two namespaces.

use std::net::Ipv6Addr;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use causeway::lab::{Namespace, poll, run};
use serde_json::Value;

/// How long each run sends, in seconds: many short runs in turn say more than a few long ones.
const SECONDS: &str = "1";

/// A server that ends with this value.
#[derive(Debug)]
struct Server(Child);

impl Server {
    fn start(namespace: &Namespace) -> anyhow::Result<Self> {
        let mut command = namespace.command("iperf3");
        command.args(["-s", "-1"]).stdin(Stdio::null());
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Having served one client it has ended already.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// TCP throughput in Gbit/s, as received.
pub(crate) fn tcp_gbps(from: &Namespace, to: &Namespace, address: Ipv6Addr) -> anyhow::Result<f64> {
    let result = measure(from, to, address, &[])?;
    number(&result, "/end/sum_received/bits_per_second").map(|bits| bits / 1e9)
}

/// UDP datagrams of 64 bytes per second, as received.
pub(crate) fn udp_pps(from: &Namespace, to: &Namespace, address: Ipv6Addr) -> anyhow::Result<f64> {
    let result = measure(from, to, address, &["-u", "-b", "0", "-l", "64"])?;
    let sent = number(&result, "/end/sum/packets")?;
    let lost = number(&result, "/end/sum/lost_packets")?;
    Ok((sent - lost) / number(&result, "/end/sum/seconds")?)
}

fn measure(
    from: &Namespace,
    to: &Namespace,
    address: Ipv6Addr,
    options: &[&str],
) -> anyhow::Result<Value> {
    let _server = Server::start(to)?;
    let address = address.to_string();
    // The server may not listen yet: then the client is refused, and tries again.
    poll("iperf3 to answer", Duration::from_secs(5), || {
        let mut client = from.command("iperf3");
        client
            .args(["-c", &address, "-t", SECONDS, "-J"])
            .args(options);
        let finished = run(&mut client)?;
        let result: Value = serde_json::from_str(&finished.stdout).context("not JSON")?;
        match result.get("error").and_then(Value::as_str) {
            None => Ok(Some(result)),
            Some(error) if error.contains("refused") => Ok(None),
            Some(error) => bail!("iperf3: {error}"),
        }
    })
}

fn number(result: &Value, path: &str) -> anyhow::Result<f64> {
    let value = result.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("iperf3 did not report {path}"))
}
