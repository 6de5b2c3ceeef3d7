//! The text.

use std::fmt::Write;

use super::{PLUGINS, Sizes, Startup, share};

pub(super) fn render(startup: &Startup, sizes: &Sizes) -> String {
    let mut out = Out::default();
    head(&mut out, startup, sizes);
    unix(&mut out, startup);
    sockets(&mut out, startup, sizes);
    cpu(&mut out, startup);
    memory(&mut out, startup, sizes);
    plugins(&mut out, startup);
    dpdk(&mut out, startup);
    // No empty line at the end.
    out.text.pop();
    out.text
}

/// Text that grows by lines. Writing to a string cannot fail.
#[derive(Default)]
struct Out {
    text: String,
    depth: usize,
}

impl Out {
    fn line(&mut self, line: &str) {
        if !line.is_empty() {
            let _always = write!(self.text, "{:1$}{line}", "", 2 * self.depth);
        }
        self.text.push('\n');
    }

    fn why(&mut self, reason: &str) {
        self.line(&format!("# {reason}"));
    }

    fn open(&mut self, name: &str) {
        self.line(&format!("{name} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
        if self.depth == 0 {
            self.line("");
        }
    }
}

fn head(out: &mut Out, startup: &Startup, sizes: &Sizes) {
    out.why(&format!(
        "VPP for {} sandboxes, written by Causeway. VPP fixes these sizes when it starts,",
        startup.sandboxes
    ));
    out.why("and aborts when one of them runs out.");
    if let Some(pages) = startup.hugepages {
        out.why(&format!(
            "Set aside {} huge pages of {} on each memory node first.",
            sizes.huge / pages.bytes(),
            pages.name()
        ));
    }
    out.line("");
}

fn unix(out: &mut Out, startup: &Startup) {
    out.open("unix");
    out.why("A supervisor watches the process.");
    out.line("nodaemon");
    out.line("nocolor");
    let folder = startup.runtime_dir.display();
    out.line(&format!("runtime-dir {folder}"));
    out.line(&format!("cli-listen {folder}/cli.sock"));
    if let Some(log) = &startup.log {
        out.line(&format!("log {}", log.display()));
    }
    if let Some(group) = &startup.group {
        out.line(&format!("gid {group}"));
    }
    if let Some(sleep) = startup.poll_sleep_usec {
        out.why("Saves a core, and adds as much latency to what the main thread forwards.");
        out.line(&format!("poll-sleep-usec {sleep}"));
    }
    out.close();
}

fn sockets(out: &mut Out, startup: &Startup, sizes: &Sizes) {
    let folder = startup.runtime_dir.display();
    out.why(
        "Whoever can open this socket controls every packet. The controller keeps one connection;",
    );
    out.why("sixteen that close together hang VPP 25.06 to 26.06.");
    out.open("socksvr");
    out.line(&format!("socket-name {folder}/api.sock"));
    out.close();
    out.why("The older way in, through shared memory, named so that another VPP's is left alone.");
    out.open("api-segment");
    out.line(&format!("prefix {}", prefix(startup)));
    if let Some(group) = &startup.group {
        out.line(&format!("gid {group}"));
    }
    out.close();
    out.why("No api-trace section: it keeps the last 262144 requests, which looks like a leak.");
    out.line("");
    out.why(&format!(
        "{} KB for each sandbox.",
        share::stats(1 + u64::from(startup.worker_count())) >> 10
    ));
    out.open("statseg");
    out.line(&format!("socket-name {folder}/stats.sock"));
    out.line(&format!("size {}", megabytes(sizes.stats)));
    out.close();
}

/// The runtime folder in letters and digits, since it becomes the name of a file.
fn prefix(startup: &Startup) -> String {
    let folder = startup.runtime_dir.display().to_string();
    let words: Vec<_> = folder
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        "root".to_owned()
    } else {
        words.join("-")
    }
}

fn cpu(out: &mut Out, startup: &Startup) {
    if startup.main_core.is_none() && startup.worker_count() == 0 {
        return;
    }
    out.open("cpu");
    if let Some(core) = startup.main_core {
        out.why("Answers the API. A busy neighbour on its core delays every attach.");
        out.line(&format!("main-core {core}"));
    }
    if !startup.worker_cores.is_empty() {
        let cores: Vec<_> = startup.worker_cores.iter().map(u16::to_string).collect();
        out.line(&format!("corelist-workers {}", cores.join(",")));
    } else if startup.workers != 0 {
        out.line(&format!("workers {}", startup.workers));
    }
    out.close();
}

fn memory(out: &mut Out, startup: &Startup, sizes: &Sizes) {
    out.why(&format!("{} KB for each sandbox.", share::HEAP >> 10));
    out.open("memory");
    out.line(&format!("main-heap-size {}", megabytes(sizes.heap)));
    if let Some(pages) = startup.hugepages {
        out.line(&format!("main-heap-page-size {}", pages.name()));
    }
    out.close();
    out.why(&format!(
        "{} for each sandbox, besides those of cards and of bursts.",
        share::BUFFERS
    ));
    out.open("buffers");
    if let Some(pages) = startup.hugepages {
        out.line(&format!("buffers-per-numa {}", sizes.buffers));
        out.line(&format!("page-size {}", pages.name()));
    } else {
        out.why("Three eighths more, since buffers do not cross pages.");
        out.line(&format!("buffers-per-numa {}", sizes.buffers / 8 * 11));
        out.why("Otherwise VPP takes huge pages for itself, from whoever counts on them.");
        out.line("page-size default");
    }
    out.close();
}

fn plugins(out: &mut Out, startup: &Startup) {
    out.open("plugins");
    if let Some(path) = &startup.plugin_path {
        out.line(&format!("path {}", path.display()));
    }
    out.why("Each plugin adds messages, memory, and ways for packets to go.");
    out.line("plugin default { disable }");
    let mut names: Vec<&str> = PLUGINS.to_vec();
    names.extend(startup.plugins.iter().map(String::as_str));
    if !startup.dpdk.is_empty() {
        names.push("dpdk");
    }
    names.sort_unstable();
    names.dedup();
    for name in names {
        out.line(&format!("plugin {name}_plugin.so {{ enable }}"));
    }
    out.close();
}

fn dpdk(out: &mut Out, startup: &Startup) {
    if startup.dpdk.is_empty() {
        return;
    }
    out.open("dpdk");
    for device in &startup.dpdk {
        out.open(&format!("dev {}", device.pci));
        if let Some(name) = &device.name {
            out.line(&format!("name {name}"));
        }
        if device.rx_queues != 0 {
            out.line(&format!("num-rx-queues {}", device.rx_queues));
        }
        out.close();
    }
    out.close();
}

fn megabytes(bytes: u64) -> String {
    format!("{}M", bytes >> 20)
}
