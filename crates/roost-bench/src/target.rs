//! An endpoint to measure.

use std::str::FromStr;

/// `[NAME=]http://HOST:PORT[#PID]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How it is called in reports.
    pub name: String,
    /// Host and port.
    pub authority: String,
    /// Process whose processor time and memory are measured.
    pub pid: Option<u32>,
}

/// What is wrong with the text of a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not an address that can be measured.
    #[error("`{0}` is not [NAME=]http://HOST:PORT[#PID]")]
    Syntax(String),
    /// Another scheme.
    #[error("`{0}` is not supported, http is")]
    Scheme(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let syntax = || TargetError::Syntax(text.to_owned());
        let (before, rest) = text.split_once("://").ok_or_else(syntax)?;
        let (name, scheme) = match before.rsplit_once('=') {
            Some((name, scheme)) => (Some(name), scheme),
            None => (None, before),
        };
        if scheme != "http" {
            return Err(TargetError::Scheme(scheme.to_owned()));
        }
        let (rest, pid) = match rest.rsplit_once('#') {
            Some((rest, pid)) => (rest, Some(pid.parse().map_err(|_| syntax())?)),
            None => (rest, None),
        };
        let authority = rest.trim_end_matches('/');
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || authority.contains('/') || name.is_some_and(str::is_empty) {
            return Err(syntax());
        }
        let name = name.unwrap_or(authority).to_owned();
        Ok(Self { name, authority: authority.to_owned(), pid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_processes_can_be_left_out() {
        let read = |text: &str| text.parse::<Target>();
        let target = |name: &str, pid| Target { name: name.into(), authority: "h:80".into(), pid };
        assert_eq!(read("http://h:80"), Ok(target("h:80", None)));
        assert_eq!(read("roost=http://h:80/#17"), Ok(target("roost", Some(17))));
        assert_eq!(read("https://h:80"), Err(TargetError::Scheme("https".into())));
        for wrong in ["h:80", "http://h", "http://h:80/v1", "http://h:80#x", "=http://h:80"] {
            assert_eq!(read(wrong), Err(TargetError::Syntax(wrong.into())));
        }
    }
}
