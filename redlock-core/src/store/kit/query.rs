//! The parameters of a URL.

use percent_encoding::percent_decode_str;

use crate::access::{Pem, TlsOptions};

/// The length of the longest name that an error repeats.
const LONGEST_NAME: usize = 40;

/// The parameters of a URL that were not yet used. No error repeats a value, which may be a password, nor a name that may be
/// the rest of a password that contains a `&` or a `?` (secrets stay in).
pub(crate) struct Query(Vec<UrlParameter>);

struct UrlParameter {
    name: String,
    value: String,
    /// Whether the name cannot be the rest of a password.
    may_be_shown: bool,
}

impl Query {
    /// Reads the part of a URL after the `?`.
    pub(crate) fn read(query: &str) -> Result<Self, String> {
        let decoded = |text: &str| {
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8();
            decoded.map(Into::into).map_err(|_| "its parameters contain bytes that are not UTF-8")
        };
        let mut may_be_shown = !query.contains('@');
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (encoded, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(encoded)?, decoded(value)?);
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            let is_plain = encoded.len() <= LONGEST_NAME && encoded.bytes().all(is_name);
            let parameter = UrlParameter { may_be_shown: may_be_shown && is_plain, value, name };
            // The names that follow may be parts of this password.
            may_be_shown &= !parameter.name.to_ascii_lowercase().contains("pass");
            Ok(parameter)
        });
        Ok(Self(pairs.collect::<Result<_, &str>>()?))
    }

    /// Removes and returns the first parameter with one of these names.
    pub(crate) fn take(&mut self, names: &[&str]) -> Option<String> {
        let index = self.0.iter().position(|one| names.contains(&one.name.as_str()))?;
        Some(self.0.remove(index).value)
    }

    /// Removes the parameters of TLS. `how` is how the URL asks for TLS.
    pub(crate) fn take_tls(
        &mut self,
        is_tls: bool,
        how: &str,
    ) -> Result<Option<TlsOptions>, String> {
        let insecure = self.take(&["tls_insecure"]).map(|text| text.parse::<bool>()).transpose();
        let insecure = insecure.map_err(|_| "its tls_insecure is neither true nor false")?;
        let mut path = |name| self.take(&[name]).map(|path| Pem::File(path.into()));
        let (ca, cert, key) = (path("tls_ca"), path("tls_cert"), path("tls_key"));
        let options = TlsOptions { ca, cert, key, insecure };
        if options.cert.is_some() != options.key.is_some() {
            return Err("tls_cert and tls_key belong together, and one of them is missing".into());
        }
        if !is_tls && options != TlsOptions::default() {
            return Err(format!("it has parameters of TLS, but means no TLS; write {how}"));
        }
        if is_tls && cfg!(not(feature = "tls")) {
            return Err("TLS needs the feature `tls` of redlock-core (or redlock-axum)".into());
        }
        Ok(is_tls.then_some(options))
    }

    /// Returns an error if parameters are left. `known` are the names of all parameters.
    pub(crate) fn check_end(&self, known: &str) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(UrlParameter { name, .. }) if known.split(", ").any(|known| known == name) => {
                Err(format!(
                    "its parameter {name:?} occurs twice, or does not belong to this kind of URL"
                ))
            }
            Some(UrlParameter { name, may_be_shown: true, .. }) => {
                Err(format!("its parameter {name:?} is unknown; known are {known}"))
            }
            Some(_) => Err(format!(
                "one of its parameters is unknown; known are {known}; in a value write %26 for &"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_behind_a_password_is_not_shown() {
        for query in
            ["password=a&s3cret=1", "p%61ssword=a&s3cret=1", "MyP%41ss&s3cret", "%73%33cret"]
        {
            let mut query = Query::read(query).unwrap_or_else(|reason| panic!("{query}: {reason}"));
            query.0.drain(..query.0.len() - 1);
            let reason = query.check_end("db").unwrap_err();
            assert!(!reason.contains("s3cret"), "{reason}");
        }
        let reason = Query::read("p%61th=a&timeout=1").unwrap().check_end("db, path").unwrap_err();
        assert!(reason.contains("\"path\" occurs twice"), "{reason}");
        let reason = Query::read("timeout=1&p%61ssword=a").unwrap().check_end("db").unwrap_err();
        assert!(reason.contains("\"timeout\" is unknown"), "{reason}");
    }
}
