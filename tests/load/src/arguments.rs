//! Arguments of the programs of this package.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Arguments of the form `value`, `--name value` and `--name`.
#[derive(Debug, Default)]
pub struct Arguments {
    positional: Option<String>,
    named: BTreeMap<String, Option<String>>,
}

impl Arguments {
    /// Reads the arguments of this process.
    ///
    /// # Errors
    ///
    /// More than one argument has no name, or a name occurs twice.
    pub fn of_process() -> Result<Self, String> {
        Self::read(std::env::args().skip(1))
    }

    fn read(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            if let Some(name) = word.strip_prefix("--") {
                let value = words.next_if(|next| !next.starts_with("--"));
                if arguments.named.insert(name.to_owned(), value).is_some() {
                    return Err(format!("--{name} occurs twice"));
                }
            } else if arguments.positional.is_none() {
                arguments.positional = Some(word);
            } else {
                return Err(format!("{word:?} belongs to no option"));
            }
        }
        Ok(arguments)
    }

    /// Takes the argument without a name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn positional(&mut self, name: &str) -> Result<String, String> {
        self.positional.take().ok_or_else(|| format!("{name} is missing"))
    }

    /// Takes the value of `--name`, if the option occurs.
    ///
    /// # Errors
    ///
    /// The option has no value, or its value cannot be read.
    pub fn option<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.named.remove(name) else { return Ok(None) };
        let value = value.ok_or_else(|| format!("--{name} needs a value"))?;
        value.parse().map(Some).map_err(|_| format!("--{name} cannot be {value:?}"))
    }

    /// Takes the value of `--name`, if the option occurs; without a value it means `default`.
    ///
    /// # Errors
    ///
    /// The option has a value that cannot be read.
    pub fn option_or<T: FromStr>(&mut self, name: &str, default: T) -> Result<Option<T>, String> {
        if self.named.get(name).is_some_and(Option::is_none) {
            self.named.remove(name);
            return Ok(Some(default));
        }
        self.option(name)
    }

    /// Takes `--name`, which has no value, and says whether it occurs.
    ///
    /// # Errors
    ///
    /// The option has a value.
    pub fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.named.remove(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(value)) => Err(format!("--{name} takes no value, and {value:?} is one")),
        }
    }

    /// Checks that every argument was taken.
    ///
    /// # Errors
    ///
    /// An argument was not taken, because its name is wrong.
    pub fn finish(self) -> Result<(), String> {
        if let Some(word) = self.positional {
            return Err(format!("{word:?} belongs to no option"));
        }
        self.named.keys().next().map_or(Ok(()), |name| Err(format!("there is no option --{name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_and_flags_are_read() {
        let line = "http://localhost --requests 12 --throttle --keys one --guard --by 3";
        let mut arguments = read(line).unwrap();
        assert_eq!(arguments.positional("URL").unwrap(), "http://localhost");
        assert_eq!(arguments.option("requests").unwrap(), Some(12));
        assert_eq!(arguments.option::<usize>("in-flight").unwrap(), None);
        assert_eq!(arguments.option_or("throttle", 7).unwrap(), Some(7));
        assert_eq!(arguments.option_or("throttle", 7).unwrap(), None);
        assert_eq!(arguments.option_or("by", 7).unwrap(), Some(3));
        assert!(arguments.flag("guard").unwrap());
        assert!(!arguments.flag("no-guard").unwrap());
        assert_eq!(arguments.option("keys").unwrap(), Some("one".to_owned()));
        arguments.finish().unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |line: &str, take: fn(&mut Arguments) -> Result<(), String>| {
            read(line).and_then(|mut arguments| {
                take(&mut arguments)?;
                arguments.finish()
            })
        };
        let requests = |arguments: &mut Arguments| arguments.option::<u32>("requests").map(drop);
        for (line, words) in [
            ("--requests", "--requests needs a value"),
            ("--requests many", "--requests cannot be \"many\""),
            ("--requests 1 --requests 2", "--requests occurs twice"),
            ("--request 1", "there is no option --request"),
            ("one two", "\"two\" belongs to no option"),
            ("one", "\"one\" belongs to no option"),
        ] {
            assert_eq!(wrong(line, requests).unwrap_err(), words, "{line}");
        }
        let guard = |arguments: &mut Arguments| arguments.flag("no-guard").map(drop);
        let words = "--no-guard takes no value, and \"7\" is one";
        assert_eq!(wrong("--no-guard 7", guard).unwrap_err(), words);
        assert_eq!(read("").unwrap().positional("URL").unwrap_err(), "URL is missing");
    }
}
