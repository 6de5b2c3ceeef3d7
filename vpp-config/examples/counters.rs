//! Prints VPP's counters whose name has a text in it: `counters [SOCKET [TEXT]]`.

use std::error::Error;
use std::path::PathBuf;

use vpp_config::stats::Stats;

#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments
        .next()
        .unwrap_or_else(|| "/run/vpp/stats.sock".into());
    let text = arguments.next().unwrap_or_default();
    let stats = Stats::connect(&PathBuf::from(socket))?;
    for (name, value) in stats.read(|name| name.contains(&text))? {
        println!("{name}: {value:?}");
    }
    Ok(())
}
