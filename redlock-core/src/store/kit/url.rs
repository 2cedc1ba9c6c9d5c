//! Reads what the URLs of all stores have in common: a scheme, a user and a password, servers with ports, a path, and
//! parameters.
//!
//! No error repeats a part of a URL, because each may be a part of a password (secrets stay in).

use std::fmt;
use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;

/// The parts of a URL behind its scheme. They are still encoded.
pub(crate) struct UrlParts<'a> {
    /// The user and the password, before the last `@` that stands before the path.
    pub(crate) userinfo: &'a str,
    /// The servers, with commas in between.
    pub(crate) servers: &'a str,
    /// The part after the slash that follows the servers.
    pub(crate) path: &'a str,
    /// The part after the `?`.
    pub(crate) query: &'a str,
    /// Says which URLs are allowed, at the end of errors.
    allowed: &'static str,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostPort {
    /// A name or an address; an IPv6 address has no brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl<'a> UrlParts<'a> {
    /// Splits a URL. Returns its scheme in lower case, and the other parts. `allowed` is the end of errors.
    pub(crate) fn split(url: &'a str, allowed: &'static str) -> Result<(String, Self), String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(format!("it has no scheme; {allowed}"));
        };
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(format!("two slashes are missing after its scheme; {allowed}"));
        };
        if rest.contains('#') {
            return Err(format!("it contains a #; write %23 in its place; {allowed}"));
        }
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = base.split_once('/').unwrap_or((base, ""));
        let (userinfo, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
        let parts = Self { userinfo, servers, path, query, allowed };
        Ok((scheme.to_ascii_lowercase(), parts))
    }

    /// Returns the user and the password, each of which may be missing or empty.
    pub(crate) fn login(&self) -> Result<[Option<String>; 2], String> {
        let (username, password) = self.userinfo.split_once(':').unwrap_or((self.userinfo, ""));
        let part = |text: &str| (!text.is_empty()).then(|| self.decoded(text)).transpose();
        Ok([part(username)?, part(password)?])
    }

    /// Reads one of the servers: `host[:port]`.
    pub(crate) fn server(&self, text: &str, default_port: u16) -> Result<HostPort, String> {
        let allowed = self.allowed;
        if text.is_empty() {
            return Err(format!("a host is missing; {allowed}"));
        }
        let server = read_server(text, default_port);
        server.ok_or_else(|| format!("a host or its port cannot be read; {allowed}"))
    }

    /// Decodes percent-encoded characters.
    pub(crate) fn decoded(&self, text: &str) -> Result<String, String> {
        let decoded = percent_decode_str(text).decode_utf8().map(Into::into);
        decoded.map_err(|_| format!("it contains bytes that are not UTF-8; {}", self.allowed))
    }
}

fn read_server(text: &str, default_port: u16) -> Option<HostPort> {
    let (host, port) = if let Some(text) = text.strip_prefix('[') {
        let (host, port) = text.split_once(']')?;
        (host.parse::<Ipv6Addr>().ok()?.to_string(), port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return None;
        }
        (host.to_ascii_lowercase(), port)
    };
    Some(HostPort { host, port: read_port(port, default_port)? })
}

/// Reads the port after a host: nothing, or a colon and a number.
pub(crate) fn read_port(text: &str, default: u16) -> Option<u16> {
    if text.is_empty() {
        return Some(default);
    }
    let digits = text.strip_prefix(':')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port > 0)
}

/// Returns an error if a server occurs twice.
pub(crate) fn check_distinct(servers: &[HostPort]) -> Result<(), String> {
    let is_repeated = |(index, server)| servers[..index].contains(server);
    if servers.iter().enumerate().any(is_repeated) {
        return Err("one of its hosts occurs twice".to_owned());
    }
    Ok(())
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> (String, UrlParts<'_>) {
        UrlParts::split(url, "allowed are urls").unwrap_or_else(|reason| panic!("{url}: {reason}"))
    }

    fn servers(parts: &UrlParts<'_>) -> Result<Vec<String>, String> {
        let server = |text| parts.server(text, 80).map(|server| server.to_string());
        parts.servers.split(',').map(server).collect()
    }

    #[test]
    fn a_url_has_a_login_servers_a_path_and_parameters() {
        let url = "Store://app:s3%40cret@A:7,b_1.local,[0::0:1],[::2]:65535/a/b?c=d?/@";
        let (scheme, parts) = split(url);
        assert_eq!((scheme.as_str(), parts.path, parts.query), ("store", "a/b", "c=d?/@"));
        assert_eq!(parts.login(), Ok(["app", "s3@cret"].map(|text| Some(text.to_owned()))));
        let expected = ["a:7", "b_1.local:80", "[::1]:80", "[::2]:65535"];
        assert_eq!(servers(&parts).unwrap(), expected);
    }

    #[test]
    fn a_login_may_have_a_user_or_a_password_alone_and_the_password_an_at_sign() {
        let text = |text: &str| Some(text.to_owned());
        for (url, login) in [
            ("s://a", [None, None]),
            ("s://@a", [None, None]),
            ("s://:@a", [None, None]),
            ("s://app@a", [text("app"), None]),
            ("s://:p:q@a", [None, text("p:q")]),
            ("s://app:p@q@a", [text("app"), text("p@q")]),
        ] {
            let (_, parts) = split(url);
            assert_eq!((parts.login(), parts.servers), (Ok(login), "a"), "{url}");
        }
    }

    /// The last URL of each kind lacks the thing before which the password begins.
    #[test]
    fn a_mistake_is_explained_without_a_part_of_the_url() {
        let error = |url: &str| match UrlParts::split(url, "allowed are urls") {
            Err(reason) => reason,
            Ok((_, parts)) => match (parts.login(), servers(&parts)) {
                (Err(reason), _) | (_, Err(reason)) => reason,
                (Ok(_), Ok(servers)) => panic!("{url}: {servers:?}"),
            },
        };
        for (url, words) in [
            ("s3cret", "it has no scheme; "),
            ("s:s3cret", "two slashes are missing after its scheme; "),
            ("s:/s3cret", "two slashes are missing after its scheme; "),
            ("s://:s3#cret@a", "it contains a #; write %23 in its place; "),
            ("s://:s3cret%ff@a", "it contains bytes that are not UTF-8; "),
            ("s://", "a host is missing; "),
            ("s:///s3cret", "a host is missing; "),
            ("s://s3cret@", "a host is missing; "),
            ("s://a,,s3cret", "a host is missing; "),
            ("s://app:s3cret", "a host or its port cannot be read; "),
            ("s://:s3cret@:80", "a host or its port cannot be read; "),
            ("s://:s3cret@a:", "a host or its port cannot be read; "),
            ("s://:s3cret@a:0", "a host or its port cannot be read; "),
            ("s://:s3cret@a:65536", "a host or its port cannot be read; "),
            ("s://:s3cret@a:+80", "a host or its port cannot be read; "),
            ("s://s3cret@[::1", "a host or its port cannot be read; "),
            ("s://s3cret@[::1]80", "a host or its port cannot be read; "),
            ("s://[s3cret]", "a host or its port cannot be read; "),
            ("s://s3 cret", "a host or its port cannot be read; "),
            ("s://s3%0Acret", "a host or its port cannot be read; "),
        ] {
            assert_eq!(error(url), format!("{words}allowed are urls"), "{url}");
        }
    }
}
