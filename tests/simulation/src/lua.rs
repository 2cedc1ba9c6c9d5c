//! Runs the scripts of redlock-core, as a server does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};
use redlock_core::simulation::scripts;

use super::resp::Reply;
use super::store::{Store, error};

/// A script of redlock-core.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: String,
    source: &'static str,
    /// The name that the simulated server gives to the script. It is as long as the SHA-1 of a real server.
    pub(super) sha: String,
}

pub(super) static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let script = |(index, (name, source))| Script { name, source, sha: format!("{index:040x}") };
    scripts().enumerate().map(script).collect()
});

/// Returns the script with this text.
pub(super) fn by_source(source: &[u8]) -> Option<&'static Script> {
    SCRIPTS.iter().find(|script| script.source.as_bytes() == source)
}

/// The part of Redis' API for scripts that the scripts use ("Redis Lua API reference"). `execute` executes a command.
/// Redis allows a script no global variables.
const API: &str = r"
    local execute
    redis = {sha1hex = ...}
    function redis.pcall(...) return execute(...) end
    function redis.call(...)
        local reply = execute(...)
        if type(reply) == 'table' and reply.err then error(reply) end
        return reply
    end
    function redis.error_reply(text) return {err = text} end
    function redis.status_reply(text) return {ok = text} end
    function redis.acl_check_cmd(...) return not execute('ACL', 'DRYRUN', 'app', ...).err end

    local function run(script, by)
        execute = by
        local succeeded, reply = pcall(script)
        if succeeded or type(reply) == 'table' then return reply end
        return {err = 'ERR ' .. tostring(reply)}
    end
    setmetatable(_G, {
        __newindex = function(_, name) error('a script sets the global variable ' .. name) end,
        __index = function(_, name) error('a script reads the global variable ' .. name) end,
    })
    return run
";

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new().expect("an interpreter");
}

struct Interpreter {
    lua: Lua,
    run: Function,
    /// The compiled scripts, by their names.
    scripts: RefCell<HashMap<&'static str, Function>>,
    /// A text of the scripts, and the text that stands in its place.
    change: RefCell<Option<[&'static str; 2]>>,
}

/// Calls `body` with scripts that have another text in the place of `text`.
pub(super) fn changed<T>(text: &'static str, other: &'static str, body: impl FnOnce() -> T) -> T {
    let has_text = |script: &&Script| script.source.contains(text);
    assert!(SCRIPTS.iter().find(has_text).is_some(), "no script has the text {text}");
    let change = |change| {
        INTERPRETER.with(|interpreter| {
            interpreter.scripts.borrow_mut().clear();
            interpreter.change.replace(change);
        });
    };
    change(Some([text, other]));
    let result = body();
    change(None);
    result
}

/// Runs a script. The writes of a script that fails stay.
pub(super) fn run(
    store: &mut Store,
    script: &'static Script,
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Reply {
    let reply = INTERPRETER.with(|interpreter| interpreter.run(store, script, keys, arguments));
    reply.unwrap_or_else(|failure| error(&format!("ERR {failure}")))
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let lua = Lua::new();
        let sha1hex = lua.create_function(|_, text: LuaString| {
            Ok(sha1_smol::Sha1::from(&*text.as_bytes()).digest().to_string())
        })?;
        let run = lua.load(API).call(sha1hex)?;
        Ok(Self { lua, run, scripts: RefCell::default(), change: RefCell::default() })
    }

    fn run(
        &self,
        store: &mut Store,
        script: &'static Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> mlua::Result<Reply> {
        let globals = self.lua.globals();
        globals.raw_set("KEYS", self.texts(keys)?)?;
        globals.raw_set("ARGV", self.texts(arguments)?)?;
        let script = self.compiled(script)?;
        let reply = self.lua.scope(|scope| {
            let execute = scope.create_function_mut(|lua, words: MultiValue| {
                let words: Vec<Vec<u8>> = words.iter().map(word).collect::<Result<_, _>>()?;
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let (Ok(reply) | Err(reply)) = store.command(&words);
                to_lua(lua, reply)
            })?;
            self.run.call((script, execute))
        })?;
        from_lua(reply)
    }

    fn texts(&self, texts: &[&[u8]]) -> mlua::Result<Table> {
        let texts = texts.iter().map(|text| self.lua.create_string(text));
        self.lua.create_sequence_from(texts.collect::<Result<Vec<_>, _>>()?)
    }

    fn compiled(&self, script: &'static Script) -> mlua::Result<Function> {
        if let Some(compiled) = self.scripts.borrow().get(&*script.name) {
            return Ok(compiled.clone());
        }
        let source = match *self.change.borrow() {
            Some([text, other]) => script.source.replace(text, other),
            None => script.source.to_owned(),
        };
        let compiled = self.lua.load(source).into_function()?;
        self.scripts.borrow_mut().insert(&script.name, compiled.clone());
        Ok(compiled)
    }
}

/// Converts a word of a command, as Redis does.
fn word(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        // Redis would send a fraction, which no command takes.
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => {
            Ok(format!("{number:.0}").into_bytes())
        }
        _ => Err(mlua::Error::runtime(format!("{value:?} is no argument of a command"))),
    }
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let table = |field: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Simple(text) => table("ok", text),
        Reply::Error(text) => table("err", &text),
        Reply::Int(number) => Ok(Value::Integer(number)),
        Reply::Bulk(text) => lua.create_string(text).map(Value::String),
        Reply::Null => Ok(Value::Boolean(false)),
        Reply::Array(items) => {
            let items: Result<Vec<_>, _> =
                items.into_iter().map(|item| to_lua(lua, item)).collect();
            lua.create_sequence_from(items?).map(Value::Table)
        }
        Reply::Map(_) | Reply::Push(_) | Reply::Verbatim(_) => {
            Err(mlua::Error::runtime("a script gets no reply of RESP3"))
        }
    }
}

/// Converts what a script has returned. A list ends before its first `nil`, and numbers lose their fraction.
fn from_lua(value: Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => Reply::Null,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        #[allow(clippy::cast_possible_truncation, reason = "Redis truncates, too")]
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Table(table) => {
            if let Some(text) = table.raw_get::<Option<String>>("err")? {
                return Ok(error(&text));
            }
            if table.raw_get::<Option<String>>("ok")?.is_some() {
                return Ok(Reply::Simple("OK"));
            }
            let items = table.sequence_values().map(|item| from_lua(item?));
            Reply::Array(items.collect::<Result<_, _>>()?)
        }
        other => return Err(mlua::Error::runtime(format!("a script returned {other:?}"))),
    })
}
