//! The chat template of one model.

mod continuation;
mod continued;
mod tools;

use std::time::SystemTime;

use minijinja::Value;

use crate::capabilities::Capabilities;
use crate::deepseek::{BuiltIn, DeepSeek};
use crate::engine::{Engine, Limits, NOW, render_error};
use crate::error::{LoadError, RenderError};
use crate::files::{Sources, TemplateFiles, Templates};
use crate::incremental::{Continued, Digester, Turn};
use crate::messages::{self, BrokenArguments};
use crate::prompt::Prompt;
use tools::Tools;

/// For requests. A conversation of a thousand messages costs well below a million units.
const LIMITS: Limits = Limits { fuel: 20_000_000, bytes: 64 << 20 };

/// For the small conversations a template is probed with when it is loaded.
const PROBE_LIMITS: Limits = Limits { fuel: 200_000, bytes: 1 << 20 };

/// A template's name, and the name of the form of it that can be watched.
const DEFAULT: [&str; 2] = ["default", "default, watched"];
const TOOL_USE: [&str; 2] = ["tool_use", "tool_use, watched"];

/// A compiled chat template. Rendering takes `&self` and may be called from any number of threads; it is CPU
/// work of roughly a millisecond per hundred messages.
#[derive(Debug)]
pub struct ChatTemplate {
    renderer: Renderer,
}

#[derive(Debug)]
enum Renderer {
    Jinja(Box<Jinja>),
    BuiltIn(BuiltIn),
}

#[derive(Debug)]
struct Jinja {
    engine: Engine,
    default: Capabilities,
    /// Present when requests with tools have a template of their own.
    tool_use: Option<Capabilities>,
    special_tokens: Vec<(String, String)>,
    digester: Digester,
    tools: Tools,
}

/// What is rendered. The JSON slices are those of the request, unchanged.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// `messages`: a JSON array.
    pub messages: &'a str,
    /// `tools`: a JSON array; `None` when there are none or they are switched off (`tool_choice: none`).
    pub tools: Option<&'a str>,
    /// Whether the prompt ends with the opening of an assistant turn. Ignored with `continue_final_message`, and by
    /// built-in renderers, which always open one.
    pub add_generation_prompt: bool,
    /// Whether the last message is the beginning of the answer: the prompt ends behind its text.
    pub continue_final_message: bool,
    /// More template variables (`chat_template_kwargs`, see [`ThinkingControls`](crate::ThinkingControls)): a JSON
    /// object. They win over all others.
    pub kwargs: Option<&'a str>,
    /// `response_format`: a JSON object. Read by built-in renderers only, whose models expect it in the prompt.
    pub response_format: Option<&'a str>,
    /// What to do with tool-call arguments that are no JSON.
    pub broken_arguments: BrokenArguments,
    /// The time `strftime_now` prints.
    pub now: SystemTime,
}

impl<'a> RenderInput<'a> {
    /// A conversation to be answered, with everything else at its default.
    #[must_use]
    pub fn new(messages: &'a str, now: SystemTime) -> Self {
        Self {
            messages,
            tools: None,
            add_generation_prompt: true,
            continue_final_message: false,
            kwargs: None,
            response_format: None,
            broken_arguments: BrokenArguments::default(),
            now,
        }
    }
}

impl ChatTemplate {
    /// Loads the template of a model. The first that applies: custom file, built-in renderer for the model type
    /// (DeepSeek V4 and V4.1), `chat_template.jinja`, `chat_template.json`, `tokenizer_config.json`, built-in renderer
    /// for DeepSeek V3.2.
    ///
    /// # Errors
    /// Any [`LoadError`]; the model can then be served for raw prompts only.
    pub fn from_files(files: &TemplateFiles) -> Result<Self, LoadError> {
        let Sources { templates, special_tokens, model_type } = files.read()?;
        if files.custom.is_none()
            && let Some(family) = DeepSeek::detect(&model_type, &files.model_name)
            && !(family.yields_to_template() && templates.default.is_some())
        {
            return Ok(Self { renderer: Renderer::BuiltIn(BuiltIn::new(family, files.deepseek)) });
        }
        Jinja::new(&templates, special_tokens).map(Self::from)
    }

    /// Makes a template from its text, with variables such as `bos_token`.
    ///
    /// # Errors
    /// [`LoadError::Syntax`].
    pub fn from_source(source: &str, special_tokens: Vec<(String, String)>) -> Result<Self, LoadError> {
        let templates = Templates { default: Some(source.to_owned()), tool_use: None };
        Jinja::new(&templates, special_tokens).map(Self::from)
    }

    /// What the template for requests without (or with) tools can read; `None` for a built-in renderer.
    #[must_use]
    pub fn capabilities(&self, with_tools: bool) -> Option<&Capabilities> {
        match &self.renderer {
            Renderer::Jinja(jinja) => Some(jinja.capabilities(with_tools)),
            Renderer::BuiltIn(_) => None,
        }
    }

    /// Whether text that spells a control token stays text in every prompt: its segments tell.
    #[must_use]
    pub fn keeps_text_apart(&self) -> bool {
        match &self.renderer {
            Renderer::Jinja(_) => false,
            Renderer::BuiltIn(built_in) => built_in.keeps_text_apart(),
        }
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// Any [`RenderError`]; [`is_client_fault`](RenderError::is_client_fault) tells a 400 from a 500.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Prompt, RenderError> {
        match &self.renderer {
            Renderer::Jinja(jinja) => jinja.render(input),
            Renderer::BuiltIn(built_in) => built_in.render(input),
        }
    }

    /// Renders a conversation that may continue an earlier one. The messages are those of `turn`, not of `input`; the
    /// text is that of [`render`](Self::render). `None` where that has to be called instead: for some templates, and
    /// for a conversation that it refuses.
    #[must_use]
    pub fn render_continued(&self, input: &RenderInput<'_>, turn: &Turn<'_>) -> Option<Continued> {
        match &self.renderer {
            Renderer::Jinja(jinja) => jinja.render_continued(input, turn),
            Renderer::BuiltIn(built_in) => built_in.render_continued(input, turn),
        }
    }
}

impl From<Jinja> for ChatTemplate {
    fn from(jinja: Jinja) -> Self {
        Self { renderer: Renderer::Jinja(Box::new(jinja)) }
    }
}

impl Jinja {
    fn new(templates: &Templates, special_tokens: Vec<(String, String)>) -> Result<Self, LoadError> {
        let source = templates.default.as_deref().ok_or(LoadError::Missing)?;
        let mut engine = Engine::new(PROBE_LIMITS);
        engine.add(DEFAULT, source)?;
        if let Some(source) = &templates.tool_use {
            engine.add(TOOL_USE, source)?;
        }
        let (digester, tools) = (Digester::default(), Tools::default());
        let mut jinja = Self {
            engine,
            default: Capabilities::default(),
            tool_use: None,
            special_tokens,
            digester,
            tools,
        };
        jinja.default = jinja.probe(DEFAULT[0], source);
        jinja.tool_use = templates.tool_use.as_deref().map(|source| jinja.probe(TOOL_USE[0], source));
        jinja.engine.set_limits(LIMITS);
        Ok(jinja)
    }

    fn capabilities(&self, with_tools: bool) -> &Capabilities {
        self.tool_use.as_ref().filter(|_| with_tools).unwrap_or(&self.default)
    }

    fn render(&self, input: &RenderInput<'_>) -> Result<Prompt, RenderError> {
        let tools = self.tools.of(input)?;
        let capabilities = self.capabilities(tools.is_some());
        let messages = messages::read(input.messages, capabilities, input.broken_arguments)?;
        let final_text =
            input.continue_final_message.then(|| continuation::final_text(&messages)).transpose()?;
        let [name, _] = self.name(tools.is_some());
        let context = self.context(messages::into_value(messages), tools, input)?;
        let mut text = self.engine.render(name, Value::from_pairs(context)).map_err(|e| render_error(&e))?;
        if let Some(final_text) = final_text {
            continuation::cut(&mut text, &final_text)?;
        }
        Ok(Prompt { text, segments: None })
    }

    fn name(&self, with_tools: bool) -> [&'static str; 2] {
        if with_tools && self.tool_use.is_some() { TOOL_USE } else { DEFAULT }
    }

    /// All variables of a rendering.
    fn context(
        &self,
        messages: Value,
        tools: Option<Value>,
        input: &RenderInput<'_>,
    ) -> Result<Vec<(String, Value)>, RenderError> {
        let kwargs = match input.kwargs {
            Some(raw) => messages::parse_object(raw)
                .map_err(|e| messages::invalid("chat_template_kwargs", &e.to_string()))?,
            None => Vec::new(),
        };
        let mut variables = self.variables(messages, tools, input.now);
        variables.push((
            "add_generation_prompt".into(),
            Value::from(input.add_generation_prompt && !input.continue_final_message),
        ));
        variables.extend(kwargs);
        Ok(variables)
    }

    fn variables(&self, messages: Value, tools: Option<Value>, now: SystemTime) -> Vec<(String, Value)> {
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut variables: Vec<(String, Value)> =
            self.special_tokens.iter().map(|(name, text)| (name.clone(), text.as_str().into())).collect();
        variables.push((NOW.into(), since_epoch.as_secs().into()));
        variables.push(("messages".into(), messages));
        // Present and none, as in transformers: templates test `is not none`.
        variables.push(("tools".into(), tools.unwrap_or_else(|| Value::from(()))));
        variables.push(("documents".into(), Value::from(())));
        variables
    }

    fn probe(&self, name: &'static str, source: &str) -> Capabilities {
        Capabilities::probe(source, |messages| {
            let mut variables = self.variables(messages, None, SystemTime::UNIX_EPOCH);
            variables.push(("add_generation_prompt".into(), Value::from(true)));
            self.engine.render(name, Value::from_pairs(variables)).ok()
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
