//! What every end-to-end test needs: the lab, and a word when it cannot be had.

use std::ffi::OsString;
use std::path::Path;

use causeway::lab::{Lab, Namespace, isolate, run_ok};
use serde_json::Value;

/// Runs `body` in a lab of its own. The test process starts itself again inside new namespaces,
/// for this test alone; `name` is the test's full path.
pub(crate) fn in_lab(name: &str, body: impl FnOnce(Lab) -> anyhow::Result<()>) {
    in_lab_at(name, Path::new("/run/lab"), body);
}

/// The same, with the lab's files in `folder`.
pub(crate) fn in_lab_at(name: &str, folder: &Path, body: impl FnOnce(Lab) -> anyhow::Result<()>) {
    if isolate::is_inside() {
        let lab = Lab::set_up_in(causeway_binary(), folder).unwrap();
        if let Err(error) = body(lab) {
            panic!("{error:?}");
        }
        return;
    }
    if let Err(reason) = isolate::available() {
        causeway_testing::skip(name, &reason);
        return;
    }
    let arguments = [name, "--exact", "--nocapture", "--test-threads=1"].map(OsString::from);
    let status = isolate::run_inside(&std::env::current_exe().unwrap(), &arguments).unwrap();
    assert!(
        status.success(),
        "{name} failed inside its namespaces: {status}"
    );
}

/// The command under test.
pub(crate) fn causeway_binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_causeway"))
}

/// A sandbox in a namespace of its own.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) tenant: String,
    pub(crate) name: String,
    pub(crate) namespace: Namespace,
    pub(crate) address: std::net::Ipv6Addr,
}

impl Sandbox {
    /// Creates `tenant/name` in `networks`, with `label` as `KEY=VALUE` where it is not empty.
    pub(crate) fn create(
        lab: &Lab,
        tenant: &str,
        name: &str,
        networks: &[&str],
        label: &str,
    ) -> anyhow::Result<Self> {
        let namespace = lab.namespace(name)?;
        let attach = format!("netns:{}", namespace.path().display());
        let mut arguments = vec!["sandbox", "create", name, "--tenant", tenant];
        for network in networks {
            arguments.extend(["--network", network]);
        }
        if !label.is_empty() {
            arguments.extend(["--label", label]);
        }
        arguments.extend(["--attach", &attach]);
        let created = lab.json(&arguments)?;
        let address = address(&created)?;
        Ok(Self {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            namespace,
            address,
        })
    }

    /// Whether one echo request to `to` is answered within a second.
    pub(crate) fn pings(&self, to: std::net::Ipv6Addr) -> anyhow::Result<bool> {
        let mut command = self.namespace.command("ping");
        command.args(["-6", "-n", "-c", "1", "-W", "1", &to.to_string()]);
        Ok(causeway::lab::run(&mut command)?.ok())
    }
}

/// The address in a reply.
pub(crate) fn address(created: &Value) -> anyhow::Result<std::net::Ipv6Addr> {
    Ok(created["address"].as_str().unwrap_or_default().parse()?)
}

/// Creates a network.
pub(crate) fn network(lab: &Lab, tenant: &str, name: &str) -> anyhow::Result<()> {
    run_ok(&mut lab.command(&["network", "create", name, "--tenant", tenant]))?;
    Ok(())
}

/// What the kernel has of ours in the router's namespace: links, routes, neighbours, elements.
pub(crate) fn kernel_state() -> anyhow::Result<String> {
    let script = "ip -n causeway -o link | sed 's/@.*//; s/^[0-9]*: //' | grep '^cw' | grep -v '^cw-up'; \
        ip -n causeway -6 route show table all | grep ' dev cw' | grep -v cw-up; \
        ip -n causeway -6 neigh show nud permanent; \
        nsenter --net=/run/netns/causeway nft -s list map inet causeway groups | grep ' : '; \
        nsenter --net=/run/netns/causeway nft -s list set inet causeway sources | grep ' \\. '; true";
    run_ok(std::process::Command::new("sh").args(["-c", script]))
}
