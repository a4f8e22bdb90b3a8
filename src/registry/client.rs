//! The clients whose settings are read.

use serde::Serialize;

/// A package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// npm, and what reads its settings.
    Npm,
    /// pip.
    Pip,
    /// uv.
    Uv,
    /// cargo.
    Cargo,
    /// apt.
    Apt,
    /// The go command.
    Go,
    /// Maven.
    Maven,
    /// Docker.
    Docker,
    /// Podman, and what reads its settings.
    Podman,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Npm,
        Self::Pip,
        Self::Uv,
        Self::Cargo,
        Self::Apt,
        Self::Go,
        Self::Maven,
        Self::Docker,
        Self::Podman,
    ];

    /// The name of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::Uv => "uv",
            Self::Cargo => "cargo",
            Self::Apt => "apt",
            Self::Go => "go",
            Self::Maven => "maven",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// A command of its own that prints what it uses.
    #[must_use]
    pub const fn command(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Npm => Some(&["npm", "config", "get", "registry"]),
            Self::Pip => Some(&["pip", "install", "--help"]),
            Self::Go => Some(&["go", "env", "GOPROXY", "GOSUMDB"]),
            Self::Uv | Self::Cargo | Self::Apt | Self::Maven | Self::Docker | Self::Podman => None,
        }
    }

    /// How to find out what it uses where nothing is set.
    #[must_use]
    pub const fn other_ways(self) -> &'static str {
        match self {
            Self::Npm => "`npm config get registry` prints it, and --ask-clients asks that",
            Self::Pip => "`pip install --help` names it at --index-url, and --ask-clients asks that",
            Self::Uv => "its documentation names it at `default-index`",
            Self::Cargo => "its documentation names it under source replacement",
            Self::Apt => "`apt-get indextargets` lists what it uses",
            Self::Go => {
                "`go env GOPROXY GOSUMDB` prints it, and --ask-clients asks that; rule set `go` has it"
            }
            Self::Maven => "`mvn help:effective-settings` prints what is set; rule set `java-maven` has it",
            Self::Docker => "rule set `docker-hub` has it",
            Self::Podman => {
                "`podman info` lists what it searches; rule set `docker-hub` has that of docker.io"
            }
        }
    }
}
