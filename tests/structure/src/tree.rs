//! Reads the modules of a crate from its source files.

use proc_macro2::TokenStream;
use syn::Item;

use crate::code::{SourceFile, without_tests};
use crate::names::{Names, Path};

/// One module, in a file of its own or inline.
pub(crate) struct Module {
    /// The path from the root of the crate, for example `node`, `redis`. Empty for the root module.
    pub(crate) path: Path,
    pub(crate) file: String,
    /// The root module is its own parent.
    pub(crate) parent: usize,
    pub(crate) children: Vec<usize>,
    pub(crate) names: Names,
}

/// The modules of a crate, without the modules that only tests or rustdoc compile. The first module is the
/// root.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
    pub(crate) files: Vec<SourceFile>,
}

/// Reads a file. Returns `None` if the file does not exist.
pub(crate) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Tree {
    /// Reads the crate whose `lib.rs` or `main.rs` is in `folder`.
    pub(crate) fn read(folder: &str, read: Read<'_>) -> Result<Self, String> {
        let mut tree = Self::default();
        let roots = ["lib.rs", "main.rs"].map(|root| format!("{folder}/{root}"));
        let (file, items) = tree.parse(&roots, read)?;
        let (path, children, names) = (Path::new(), Vec::new(), Names::of(&items));
        tree.modules.push(Module { path, file, parent: 0, children, names });
        tree.add_children(0, folder, &items, read)?;
        Ok(tree)
    }

    /// Parses the first of the files that exists.
    fn parse(&mut self, files: &[String], read: Read<'_>) -> Result<(String, Vec<Item>), String> {
        let found = files.iter().find_map(|file| Some((file, read(file)?)));
        let (file, text) = found.ok_or_else(|| format!("cannot read {}", files.join(" or ")))?;
        let code: TokenStream = text.parse().map_err(|error| format!("{file}: {error}"))?;
        let code = without_tests(code);
        let parsed = syn::parse2::<syn::File>(code.clone());
        let parsed = parsed.map_err(|error| format!("{file}: {error}"))?;
        self.files.push(SourceFile { path: file.clone(), code });
        Ok((file.clone(), parsed.items))
    }

    /// Adds the child modules among the items of a module. Their files are in `folder`.
    fn add_children(
        &mut self,
        parent: usize,
        folder: &str,
        items: &[Item],
        read: Read<'_>,
    ) -> Result<(), String> {
        for item in items {
            let Item::Mod(child) = item else { continue };
            let name = child.ident.to_string();
            let folder = format!("{folder}/{name}");
            let (file, items) = match &child.content {
                Some((_, items)) => (self.modules[parent].file.clone(), items.clone()),
                None => self.parse(&[format!("{folder}.rs"), format!("{folder}/mod.rs")], read)?,
            };
            let id = self.modules.len();
            let path = [&self.modules[parent].path[..], &[name]].concat();
            let (children, names) = (Vec::new(), Names::of(&items));
            self.modules.push(Module { path, file, parent, children, names });
            self.modules[parent].children.push(id);
            self.add_children(id, &folder, &items, read)?;
        }
        Ok(())
    }
}
