//! Calls of functions: several on offer, one that fits or none, and what to say to the result.
//! Refuses to know how calls are rendered.

use super::dialogue::{Dialogue, Message, spaced};
use super::dice::Dice;
use super::lexicon::{self, Lexicon};
use serde_json::{Map, Value, json};

/// The answer where no function fits.
pub(crate) const NO_FUNCTION: &str = "I have no function for that.";

/// What an argument holds.
#[derive(Clone, Copy)]
enum Kind {
    City,
    Person,
    Thing,
    Minutes,
    Room,
    Language,
}

/// What can be asked: names of the function, arguments (with the names they may have), questions with
/// `{0}`, `{1}` for the arguments, the result's key and kind, and what to say to it, `{r}` being the result.
struct Topic {
    functions: &'static [&'static str],
    about: &'static str,
    arguments: &'static [(&'static [&'static str], Kind)],
    questions: &'static [&'static str],
    result: (&'static str, Outcome),
    reply: &'static str,
}

#[derive(Clone, Copy)]
enum Outcome {
    Number(usize, usize),
    Clock,
    Done,
    Sky,
}

const TOPICS: &[Topic] = &[
    Topic {
        functions: &[
            "get_weather",
            "weather",
            "current_weather",
            "get_current_weather",
            "weather_report",
        ],
        about: "weather",
        arguments: &[(&["city", "location", "place", "town"], Kind::City)],
        questions: &[
            "What is the weather in {0}?",
            "How is the weather in {0}?",
            "What's the weather like in {0}?",
            "What is the weather like in {0} today?",
            "Tell me the weather in {0}.",
            "weather in {0}?",
            "Is it raining in {0}?",
        ],
        result: ("sky", Outcome::Sky),
        reply: "It is {r} in {0}.",
    },
    Topic {
        functions: &["get_temperature", "temperature", "current_temperature"],
        about: "temperature",
        arguments: &[(&["city", "location", "place"], Kind::City)],
        questions: &[
            "What is the temperature in {0}?",
            "How warm is it in {0}?",
            "How cold is it in {0}?",
        ],
        result: ("temperature", Outcome::Number(0, 35)),
        reply: "It is {r} degrees in {0}.",
    },
    Topic {
        functions: &["get_time", "current_time", "get_current_time", "local_time"],
        about: "time",
        arguments: &[(&["city", "location", "place", "zone"], Kind::City)],
        questions: &[
            "What time is it in {0}?",
            "What is the time in {0}?",
            "Tell me the time in {0}.",
        ],
        result: ("time", Outcome::Clock),
        reply: "It is {r} in {0}.",
    },
    Topic {
        functions: &["get_population", "population", "count_people"],
        about: "people in a city",
        arguments: &[(&["city", "place", "town"], Kind::City)],
        questions: &["How many people live in {0}?", "What is the population of {0}?"],
        result: ("people", Outcome::Number(1000, 9999)),
        reply: "{r} people live in {0}.",
    },
    Topic {
        functions: &["get_price", "price", "find_price", "lookup_price"],
        about: "price",
        arguments: &[(&["item", "product", "thing"], Kind::Thing)],
        questions: &[
            "How much does the {0} cost?",
            "What is the price of the {0}?",
            "What does the {0} cost?",
        ],
        result: ("price", Outcome::Number(1, 99)),
        reply: "The {0} costs {r} coins.",
    },
    Topic {
        functions: &["search", "web_search", "search_web", "find_pages"],
        about: "search",
        arguments: &[(&["query", "text", "term"], Kind::Thing)],
        questions: &["Search for {0}.", "Search the web for {0}.", "Please search for {0}."],
        result: ("hits", Outcome::Number(1, 99)),
        reply: "I found {r} pages about {0}.",
    },
    Topic {
        functions: &["find_number", "get_phone_number", "phone_book", "lookup_contact"],
        about: "phone number",
        arguments: &[(&["name", "person", "contact"], Kind::Person)],
        questions: &[
            "What is the phone number of {0}?",
            "Find the phone number of {0}.",
            "How can I call {0}?",
        ],
        result: ("number", Outcome::Number(1000, 9999)),
        reply: "The number of {0} is {r}.",
    },
    Topic {
        functions: &["set_timer", "start_timer", "timer"],
        about: "timer",
        arguments: &[(&["minutes", "length", "duration"], Kind::Minutes)],
        questions: &[
            "Set a timer for {0} minutes.",
            "Start a timer of {0} minutes.",
            "Please set a timer for {0} minutes.",
        ],
        result: ("status", Outcome::Done),
        reply: "The timer is set for {0} minutes.",
    },
    Topic {
        functions: &["turn_on_light", "light_on", "switch_light"],
        about: "light",
        arguments: &[(&["room", "place"], Kind::Room)],
        questions: &[
            "Turn on the light in the {0}.",
            "Please turn on the light in the {0}.",
            "Switch on the light in the {0}.",
        ],
        result: ("status", Outcome::Done),
        reply: "The light in the {0} is on.",
    },
    Topic {
        functions: &["get_distance", "distance", "measure_distance", "get_route"],
        about: "distance",
        arguments: &[
            (&["from", "start", "origin"], Kind::City),
            (&["to", "end", "destination"], Kind::City),
        ],
        questions: &["How far is it from {0} to {1}?", "What is the distance from {0} to {1}?"],
        result: ("distance", Outcome::Number(20, 999)),
        reply: "It is {r} kilometres from {0} to {1}.",
    },
    Topic {
        functions: &["translate", "translate_word", "get_translation"],
        about: "translate",
        arguments: &[
            (&["word", "text"], Kind::Thing),
            (&["language", "target", "to"], Kind::Language),
        ],
        questions: &["Translate {0} into {1}.", "How do I say {0} in {1}?", "What is {0} in {1}?"],
        result: ("status", Outcome::Done),
        reply: "I translated {0} into {1}.",
    },
    Topic {
        functions: &["send_greeting", "greet", "send_hello"],
        about: "greeting",
        arguments: &[(&["to", "name", "person"], Kind::Person)],
        questions: &["Say hello to {0}.", "Send a greeting to {0}.", "Greet {0} from me."],
        result: ("status", Outcome::Done),
        reply: "I said hello to {0}.",
    },
];

const ROOMS: &[&str] = &[
    "kitchen",
    "bathroom",
    "bedroom",
    "garden",
    "hall",
    "office",
    "attic",
    "cellar",
    "living room",
];
const LANGUAGES: &[&str] =
    &["French", "German", "Spanish", "Italian", "Dutch", "Polish", "Latin", "Greek"];
const SKIES: &[&str] = &["sunny", "rainy", "cloudy", "windy", "snowy", "foggy"];

/// One topic with its names drawn.
struct Offer {
    topic: &'static Topic,
    function: String,
    keys: Vec<String>,
}

/// A question that one of the functions answers, or none.
pub(crate) fn dialogue(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let mut offers = offers(dice, lexicon);
    let wanted = &offers[0];
    let values: Vec<Value> =
        wanted.topic.arguments.iter().map(|(_, kind)| kind.draw(dice, lexicon)).collect();
    let question = with_values(dice.pick::<&str>(wanted.topic.questions), &values);
    let mut dialogue = Dialogue::default();
    if dice.chance(12) && lexicon == Lexicon::Known {
        offers.remove(0);
        if offers.is_empty() {
            offers = self::offers(dice, lexicon);
            offers.truncate(1);
            let dialogue = unrelated(dice);
            return offered(dice, offers, dialogue);
        }
        dialogue.ask_exactly(question, NO_FUNCTION);
        return offered(dice, offers, dialogue);
    }
    let arguments: Map<String, Value> = wanted.keys.iter().cloned().zip(values.clone()).collect();
    dialogue.call(question, &wanted.function, Value::Object(arguments));
    if dice.chance(35) && lexicon == Lexicon::Known {
        let (key, outcome) = wanted.topic.result;
        let result = outcome.draw(dice);
        dialogue.messages.push(Message::Tool(spaced(&json!({key: result}))));
        let reply = with_values(wanted.topic.reply, &values).replace("{r}", &plain(&result));
        let expect = super::dialogue::Expect::OneOf(vec![reply.clone()]);
        dialogue.answer(reply, expect);
    }
    offered(dice, offers, dialogue)
}

/// Puts functions that are of no use in front of another conversation.
pub(crate) fn distract(dice: &mut Dice, dialogue: Dialogue) -> Dialogue {
    let offers = offers(dice, Lexicon::Known);
    offered(dice, offers, dialogue)
}

/// Whether `answer` calls something with one or two arguments, all of them named by a word.
pub(crate) fn reads_as_call(answer: &str) -> bool {
    let Some(call) = read_call(answer) else { return false };
    let Some(arguments) = call["arguments"].as_object() else { return false };
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    let keys_are_names = arguments.keys().all(|key| is_name(key));
    call["name"].as_str().is_some_and(is_name) && keys_are_names && matches!(arguments.len(), 1 | 2)
}

/// The call that `answer` consists of.
pub(crate) fn read_call(answer: &str) -> Option<Value> {
    let body = answer.strip_prefix("<tool_call>\n")?.strip_suffix("\n</tool_call>")?;
    serde_json::from_str(body).ok()
}

/// Whether `answer` is something that is said to a function's result.
pub(crate) fn reads_as_reply(answer: &str) -> bool {
    answer == NO_FUNCTION || TOPICS.iter().any(|topic| reads_as(topic.reply, answer))
}

/// Whether `text` is the template with each slot filled by one or two words.
fn reads_as(template: &str, text: &str) -> bool {
    let Some((literal, rest)) = template.split_once('{') else { return template == text };
    let Some(text) = text.strip_prefix(literal) else { return false };
    let (_, after) = rest.split_once('}').expect("a slot that opens closes");
    let is_value = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == ':';
        words.len() <= 2 && words.iter().all(|word| !word.is_empty() && word.chars().all(fits))
    };
    (1..=text.len())
        .filter(|&end| text.is_char_boundary(end) && is_value(&text[..end]))
        .any(|end| reads_as(after, &text[end..]))
}

fn unrelated(dice: &mut Dice) -> Dialogue {
    super::numbers::sums(dice)
}

fn offered(dice: &mut Dice, mut offers: Vec<Offer>, mut dialogue: Dialogue) -> Dialogue {
    dice.shuffle(&mut offers);
    dialogue.tools = offers.iter().map(|offer| offer.schema(dice)).collect();
    dialogue
}

/// One to three different topics.
///
/// Among the known words are names of functions and arguments that say nothing: only reading the offer
/// tells them, so that the model learns to read it instead of guessing the commonest name.
fn offers(dice: &mut Dice, lexicon: Lexicon) -> Vec<Offer> {
    let mut topics: Vec<usize> = (0..TOPICS.len()).collect();
    dice.shuffle(&mut topics);
    topics.truncate(*dice.pick(&[1, 1, 2, 2, 3]));
    topics
        .into_iter()
        .map(|index| {
            let topic = &TOPICS[index];
            let mut function = (*dice.pick(topic.functions)).to_owned();
            if lexicon == Lexicon::Known && dice.chance(25) {
                let (_, end) = function.rsplit_once('_').unwrap_or(("", &function));
                function = format!("{}_{end}", lexicon::made_up(dice));
            }
            let invented = lexicon == Lexicon::Known && dice.chance(40);
            let mut key = |names: &[&str]| {
                if invented { lexicon::made_up(dice) } else { (*dice.pick(names)).to_owned() }
            };
            let keys = topic.arguments.iter().map(|(names, _)| key(names)).collect();
            Offer { topic, function, keys }
        })
        .collect()
}

impl Offer {
    fn schema(&self, dice: &mut Dice) -> Value {
        let mut properties = Map::new();
        for (key, (_, kind)) in self.keys.iter().zip(self.topic.arguments) {
            let kind = if matches!(kind, Kind::Minutes) { "integer" } else { "string" };
            let mut property = json!({"type": kind});
            if dice.chance(30) {
                property["description"] = json!(format!("The {key}."));
            }
            properties.insert(key.clone(), property);
        }
        if self.topic.about == "weather" && dice.chance(25) {
            properties.insert(
                "unit".into(),
                json!({"type": "string", "enum": ["celsius", "fahrenheit"]}),
            );
        }
        let mut function = json!({"name": self.function});
        if dice.chance(80) {
            let verb = dice.pick(&["Get the", "Find the", "The", "Ask for the", "Handles the"]);
            function["description"] = json!(format!("{verb} {}.", self.topic.about));
        }
        let mut parameters = json!({"type": "object", "properties": properties});
        if dice.chance(85) {
            parameters["required"] = json!(self.keys);
        }
        function["parameters"] = parameters;
        json!({"type": "function", "function": function})
    }
}

impl Kind {
    fn draw(self, dice: &mut Dice, lexicon: Lexicon) -> Value {
        match self {
            Self::City => json!(lexicon.city(dice)),
            Self::Person => json!(lexicon.name(dice)),
            Self::Thing => json!(lexicon.subject(dice)),
            Self::Minutes => json!(dice.between(1, 99)),
            Self::Room if dice.chance(40) => json!(lexicon::made_up(dice)),
            Self::Room => json!(dice.pick(ROOMS)),
            Self::Language => json!(dice.pick(LANGUAGES)),
        }
    }
}

impl Outcome {
    fn draw(self, dice: &mut Dice) -> Value {
        match self {
            Self::Number(low, high) => json!(dice.between(low, high)),
            Self::Clock => json!(format!("{:02}:{:02}", dice.below(24), dice.below(60))),
            Self::Done => json!("done"),
            Self::Sky => json!(dice.pick(SKIES)),
        }
    }
}

fn with_values(template: &str, values: &[Value]) -> String {
    values.iter().enumerate().fold(template.to_owned(), |text, (index, value)| {
        text.replace(&format!("{{{index}}}"), &plain(value))
    })
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_name_an_offered_function_and_its_keys() {
        let mut dice = Dice::new(9);
        for _ in 0..300 {
            let dialogue = dialogue(&mut dice, Lexicon::HeldOut);
            let Some(Message::Call { name, arguments }) = dialogue.messages.last() else {
                panic!("{dialogue:?}")
            };
            let tool = dialogue
                .tools
                .iter()
                .find(|tool| tool["function"]["name"] == json!(name))
                .expect("the function is on offer");
            let properties = &tool["function"]["parameters"]["properties"];
            for key in arguments.as_object().expect("an object").keys() {
                assert!(properties.get(key).is_some(), "{key}: {tool}");
            }
        }
    }
}
