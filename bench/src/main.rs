//! `causeway-bench`: measures Causeway beside its floor and its peers, in one run, and writes
//! `target/bench/report.json`.
//!
//! Everything happens in namespaces of its own, which vanish with the process.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use causeway::lab::isolate;
use clap::Parser;

mod agent;
mod attach;
mod dataplane;
mod egress;
mod floor;
mod forward;
mod ipam;
mod iperf;
mod netlink;
mod netns;
mod ping;
mod policy;
mod quarantine;
mod report;
mod scale;
mod stats;
mod vpp;
mod world;

use report::Report;
use world::World;

/// Measures Causeway beside its floor and its peers, all in one run.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only the parts that yield names with this beginning, such as `attach.` or `ipam`.
    #[arg(long, value_name = "PREFIX", default_value = "")]
    only: String,
    /// Where the report and the files of the run go: a disk, so that durability costs what it
    /// costs.
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    folder: PathBuf,
    /// How many sandboxes the full node has. 10000 takes some minutes more.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = sandboxes())]
    sandboxes: u16,
    /// The program of the peer hudsucker, for the inner process.
    #[arg(long, hide = true)]
    hudsucker: Option<PathBuf>,
    /// Why there is no such program.
    #[arg(long, hide = true, default_value = "not compiled")]
    no_hudsucker: String,
}

fn sandboxes() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(100..=10_000)
}

/// What is measured together.
struct Part {
    /// What the names of its numbers begin with.
    names: &'static [&'static str],
    measure: fn(&mut World, &mut Report) -> anyhow::Result<()>,
}

/// In this order: the agent's node fills up towards the end.
const PARTS: &[Part] = &[
    Part {
        names: &["ipam."],
        measure: ipam::measure,
    },
    Part {
        names: &["policy."],
        measure: policy::measure,
    },
    // Before the agent is started, whose proxy has to trust a root more.
    Part {
        names: &["egress."],
        measure: egress::measure,
    },
    Part {
        names: &["forward."],
        measure: forward::measure,
    },
    Part {
        names: &["attach.kernel", "attach.floor", "attach.api"],
        measure: attach::one_at_a_time,
    },
    Part {
        names: &["attach.kernel", "attach.api"],
        measure: attach::at_once,
    },
    Part {
        names: &["attach.first_ping"],
        measure: attach::first_ping,
    },
    Part {
        names: &["attach.cni_ptp"],
        measure: attach::by_plugins,
    },
    Part {
        names: &["quarantine."],
        measure: quarantine::measure,
    },
    Part {
        names: &["attach.vpp", "forward.vpp", "resync.vpp"],
        measure: vpp::measure,
    },
    Part {
        names: &["attach.at_", "attach.fill_", "resync."],
        measure: scale::measure,
    },
];

impl Part {
    fn is_asked_for(&self, only: &str) -> bool {
        self.names
            .iter()
            .any(|name| name.starts_with(only) || only.starts_with(name))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if isolate::is_inside() {
        inside(&arguments)
    } else {
        outside(&arguments)
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            say(&format!("causeway-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Compiles the peer, for which the outer world is needed, and starts the inner process.
fn outside(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("cannot make {}", arguments.folder.display()))?;
    let folder = arguments.folder.canonicalize()?;
    let mut inner: Vec<OsString> = vec![
        "--only".into(),
        (&arguments.only).into(),
        "--sandboxes".into(),
        arguments.sandboxes.to_string().into(),
        "--folder".into(),
        folder.clone().into(),
    ];
    if parts(&arguments.only).any(|part| part.names.contains(&"egress.")) {
        say("compiling the peer hudsucker where that was not done before");
        match egress::build_peer(&folder) {
            Ok(program) => inner.extend(["--hudsucker".into(), program.into()]),
            Err(why) => inner.extend(["--no-hudsucker".into(), why.into()]),
        }
    }
    let status = isolate::run_inside(&std::env::current_exe()?, &inner)?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn inside(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let lab = arguments.folder.join("lab");
    if lab.exists() {
        fs::remove_dir_all(&lab).context("cannot remove what an earlier run left")?;
    }
    let hudsucker = arguments
        .hudsucker
        .clone()
        .ok_or_else(|| arguments.no_hudsucker.clone());
    let mut world = World::set_up(&lab, hudsucker, arguments.sandboxes.into())?;
    let mut report = Report::default();
    for part in parts(&arguments.only) {
        let start = Instant::now();
        let names = part.names.join(", ");
        if let Err(error) = (part.measure)(&mut world, &mut report) {
            report.failed(&names, &error);
        }
        say(&format!(
            "measured {names} in {:.1} s",
            start.elapsed().as_secs_f64()
        ));
    }
    drop(world);
    let path = write(&report, &arguments.folder)?;
    say(&format!("\n{report}\nwritten to {}", path.display()));
    Ok(if report.is_complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn parts(only: &str) -> impl Iterator<Item = &'static Part> {
    PARTS.iter().filter(move |part| part.is_asked_for(only))
}

fn write(report: &Report, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("report.json");
    let text = serde_json::to_string_pretty(&report.to_json())?;
    fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn say(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_chooses_parts() {
        let chosen = |only| {
            parts(only)
                .flat_map(|part| part.names)
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen("ipam"), ["ipam."]);
        assert_eq!(chosen("ipam.durable_per_s"), ["ipam."]);
        assert_eq!(chosen("quarantine.p99_ms"), ["quarantine."]);
        assert_eq!(chosen("nothing"), Vec::<&str>::new());
        assert_eq!(parts("").count(), PARTS.len());
        assert_eq!(parts("attach").count(), 6);
    }
}
