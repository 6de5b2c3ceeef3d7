//! `causeway demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::CliError;
use crate::demo::DemoBackend;

/// Runs the story.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Which dataplane carries the packets.
    #[arg(long, value_enum, default_value = "kernel")]
    backend: DemoBackend,
    /// Run the demo's internet. The demo does this itself.
    #[arg(long, hide = true, value_name = "FOLDER")]
    internet: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        if let Some(folder) = self.internet {
            crate::demo::serve_internet(&folder).map_err(CliError::Demo)?;
            return Ok(ExitCode::SUCCESS);
        }
        let passed = crate::demo::run(self.backend).map_err(CliError::Demo)?;
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
