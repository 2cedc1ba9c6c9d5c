//! Collects the items, imports and paths in the code of one module.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Ident, Item, UseTree};

/// The parts of a path as it is written, for example `super`, `node`, `Vote`. If the path begins with `::`,
/// its first part is empty.
pub(crate) type Path = Vec<String>;

/// The items, imports and paths in the code of one module, without its child modules.
#[derive(Default)]
pub(crate) struct Names {
    /// The items that the module defines, except by a macro.
    pub(crate) definitions: Vec<String>,
    /// The names that a `use` imports, each with its path.
    pub(crate) imports: Vec<(String, Path)>,
    /// The paths before `::*`.
    pub(crate) globs: Vec<Path>,
    /// All paths in the code, with their lines.
    pub(crate) mentions: Vec<(Path, usize)>,
}

impl Names {
    pub(crate) fn of(items: &[Item]) -> Self {
        let mut names = Self::default();
        for item in items {
            names.definitions.extend(defined(item).map(Ident::to_string));
            names.visit_item(item);
        }
        names
    }

    fn mention(&mut self, path: Path, span: Span) {
        self.mentions.push((path, span.start().line));
    }

    fn add_use(&mut self, mut path: Path, tree: &UseTree) {
        let (ident, name) = match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                return self.add_use(path, &step.tree);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_use(path.clone(), tree));
            }
            UseTree::Glob(glob) => {
                self.globs.push(path.clone());
                return self.mention(path, glob.star_token.spans[0]);
            }
            UseTree::Name(name) => (&name.ident, &name.ident),
            UseTree::Rename(rename) => (&rename.ident, &rename.rename),
        };
        if ident != "self" {
            path.push(ident.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        self.imports.extend(name.map(|name| (name, path.clone())));
        self.mention(path, ident.span());
    }

    /// Finds paths in the tokens of a macro or an attribute. A name without `::` does not count as a path.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) => {
                    match colons {
                        2 if path.is_empty() => path.push(String::new()),
                        // The path continues, so the mention of its shorter part is replaced.
                        2 if path.len() > 1 => drop(self.mentions.pop()),
                        2 => {}
                        _ => path.clear(),
                    }
                    path.push(ident.to_string());
                    if path.len() > 1 {
                        self.mention(path.clone(), ident.span());
                    }
                }
                TokenTree::Group(group) => {
                    path.clear();
                    self.scan(group.stream());
                }
                _ => path.clear(),
            }
            colons = 0;
        }
    }
}

/// Returns the name of an item that is not a module.
fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Names {
    /// Skips child modules, which have their own [`Names`].
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let start = item.leading_colon.map(|_| String::new());
        self.add_use(start.into_iter().collect(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let start = path.leading_colon.map(|_| String::new());
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        self.mention(start.into_iter().chain(segments).collect(), path.span());
        visit::visit_path(self, path);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.scan(tokens.clone());
    }
}
