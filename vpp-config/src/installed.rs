//! Where VPP is installed on this machine.

use std::fs;
use std::path::PathBuf;

/// The environment variable that names where VPP was installed: its `bin/vpp` is taken.
pub const PREFIX: &str = "VPP_PREFIX";

/// A VPP that is installed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The program. `vppctl` is beside it.
    pub program: PathBuf,
    /// The folder of its plugins. None where it knows them by itself.
    pub plugins: Option<PathBuf>,
}

/// No VPP was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// Neither named nor on the search path.
    #[error("there is no VPP on the search path: install FD.io's packages, or set {PREFIX}")]
    NotOnPath,
    /// The prefix has no program.
    #[error("{PREFIX} is set, and {} is missing", program.display())]
    NoProgram {
        /// Where it should be.
        program: PathBuf,
    },
    /// The prefix has no plugins.
    #[error("there are no plugins of VPP in {}", lib.display())]
    NoPlugins {
        /// Where they were looked for.
        lib: PathBuf,
    },
}

impl Installed {
    /// Finds VPP under [`PREFIX`] where that is set, and on the search path elsewhere.
    pub fn find() -> Result<Self, FindError> {
        match std::env::var_os(PREFIX) {
            Some(prefix) => Self::below(PathBuf::from(prefix)),
            None => Self::on_path().ok_or(FindError::NotOnPath),
        }
    }

    /// The one that was installed below `prefix`.
    pub fn below(prefix: impl Into<PathBuf>) -> Result<Self, FindError> {
        let prefix = prefix.into();
        let program = prefix.join("bin/vpp");
        if !program.is_file() {
            return Err(FindError::NoProgram { program });
        }
        // lib/vpp_plugins, or lib/x86_64-linux-gnu/vpp_plugins.
        let lib = prefix.join("lib");
        let below = fs::read_dir(&lib).into_iter().flatten().flatten();
        let plugins = below
            .map(|entry| entry.path().join("vpp_plugins"))
            .chain([lib.join("vpp_plugins")])
            .find(|folder| folder.is_dir());
        match plugins {
            Some(folder) => Ok(Self {
                program,
                plugins: Some(folder),
            }),
            None => Err(FindError::NoPlugins { lib }),
        }
    }

    fn on_path() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            // Not on every user's path.
            .chain(["/usr/sbin".into()])
            .map(|folder| folder.join("vpp"))
            .find(|program| program.is_file())?;
        Some(Self {
            program,
            plugins: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_whole_or_what_it_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path();
        let program = prefix.join("bin/vpp");
        let found = || Installed::below(prefix);
        assert_eq!(
            found(),
            Err(FindError::NoProgram {
                program: program.clone()
            })
        );
        fs::create_dir_all(prefix.join("bin")).unwrap();
        fs::write(&program, "").unwrap();
        let lib = prefix.join("lib");
        assert_eq!(found(), Err(FindError::NoPlugins { lib: lib.clone() }));
        let plugins = lib.join("x86_64-linux-gnu/vpp_plugins");
        fs::create_dir_all(&plugins).unwrap();
        let whole = Installed {
            program,
            plugins: Some(plugins),
        };
        assert_eq!(found(), Ok(whole));
    }
}
