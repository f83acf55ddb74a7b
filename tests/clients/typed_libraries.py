"""Libraries for text, objects and single tool calls. Sections of `programs.py`; see there."""

from importlib.metadata import version
from typing import Literal

from asked import QUESTION, Person, add


def langchain_anthropic(p):
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    chat = ChatAnthropic(model=p.model, base_url=p.root, api_key="none", max_retries=0)
    with p.check("langchain-anthropic: an answer, max_tokens as it comes"):
        answer = chat.invoke(QUESTION)
        assert answer.usage_metadata["output_tokens"] > 0, answer
        assert p.last("/v1/messages")["max_tokens"] == chat.max_tokens
    with p.check("langchain-anthropic: a stream has text and usage"):
        chunks = list(chat.stream(QUESTION))
        assert sum(len(chunk.text) for chunk in chunks) > 0
        assert sum((c.usage_metadata or {}).get("output_tokens", 0) for c in chunks) > 0
    for method in ["function_calling", "json_schema"]:
        with p.check(f"langchain-anthropic: structured output by {method}"):
            person = chat.with_structured_output(Person, method=method).invoke(QUESTION)
            assert isinstance(person, Person), person
    with p.check("langchain-anthropic: a tool is called, and its result goes back"):
        adding = tool(add)
        bound = chat.bind_tools([adding], tool_choice="add", parallel_tool_calls=False)
        asked = bound.invoke(QUESTION)
        (call,) = asked.tool_calls
        result = ToolMessage(str(adding.invoke(call["args"])), tool_call_id=call["id"])
        answer = chat.bind_tools([adding]).invoke([HumanMessage(QUESTION), asked, result])
        assert answer.response_metadata["stop_reason"], answer


def pydantic_ai(p):
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    openai = OpenAIProvider(base_url=p.v1, api_key="none")
    models = {
        "chat": OpenAIChatModel(p.model, provider=openai),
        "responses": OpenAIResponsesModel(p.model, provider=openai),
    }
    try:
        anthropic = AnthropicProvider(base_url=p.root, api_key="none")
        models["anthropic"] = AnthropicModel(p.model, provider=anthropic)
    except TypeError as error:
        # 2.32 does not know anthropic 1 and later, which no longer build on httpx.
        print(f"left out: pydantic-ai with anthropic {version('anthropic')}: {error}")
    for name, model in models.items():
        _pydantic_ai_model(p, f"pydantic-ai, {name}", model)


def _pydantic_ai_model(p, name: str, model):
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    from pydantic_ai.capabilities import AbstractCapability

    with p.check(f"{name}: text"):
        result = Agent(model).run_sync(QUESTION)
        assert result.output and result.usage.output_tokens > 0, result
    with p.check(f"{name}: text as a stream"):
        with Agent(model).run_stream_sync(QUESTION) as result:
            assert "".join(result.stream_text(delta=True))
    with p.check(f"{name}: an object by a tool"):
        result = Agent(model, output_type=ToolOutput(Person), retries=0).run_sync(QUESTION)
        assert isinstance(result.output, Person), result.output
    with p.check(f"{name}: an object by a schema"):
        try:
            result = Agent(model, output_type=NativeOutput(Person), retries=0).run_sync(QUESTION)
        except Exception as error:  # noqa: BLE001
            # Which models can do so is decided by their names.
            assert "not supported by this model" in str(error), error
            print(f"  {error}")
        else:
            assert isinstance(result.output, Person), result.output
    with p.check(f"{name}: a tool's result goes back, then an object"):
        called = []

        class CallFirst(AbstractCapability):
            def get_model_settings(self):
                return lambda run: {"tool_choice": ["look_up"]} if run.run_step == 1 else {}

        # A toy model would call the tool for ever: it has it in the first step only.
        async def first(run, tool):
            return tool if run.run_step == 1 else None

        agent = Agent(
            model, output_type=ToolOutput(Person), retries=0, capabilities=[CallFirst()]
        )

        @agent.tool_plain(prepare=first)
        def look_up(city: Literal["Oslo", "Rome"]) -> str:
            """Who lives in a city."""
            called.append(city)
            return f"Ada lives in {city}."

        result = agent.run_sync(QUESTION)
        assert isinstance(result.output, Person) and called, (result.output, called)


def llama_index(p):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    fields = dict(model=p.model, api_base=p.v1, api_key="none", max_retries=0)
    chat = OpenAILike(**fields, is_chat_model=True, is_function_calling_model=True)
    messages = [ChatMessage(role="user", content=QUESTION)]
    with p.check("llama-index: chat, and its stream"):
        assert chat.chat(messages).message.content
        assert "".join(chunk.delta or "" for chunk in chat.stream_chat(messages))
    with p.check("llama-index: a completion, and its stream"):
        plain = OpenAILike(**fields, is_chat_model=False, max_tokens=20)
        assert plain.complete("Once upon a time").text
        assert "".join(chunk.delta or "" for chunk in plain.stream_complete("Once upon a time"))
    with p.check("llama-index: a required tool"):
        answer = chat.chat_with_tools(
            [FunctionTool.from_defaults(add)], user_msg=QUESTION, tool_required=True
        )
        (call,) = chat.get_tool_calls_from_response(answer)[:1]
        assert call.tool_name == "add" and call.tool_kwargs["b"] in (4, 5), call
    with p.check("llama-index: structured_predict"):
        person = chat.structured_predict(Person, PromptTemplate(QUESTION))
        assert isinstance(person, Person), person
    with p.check("llama-index: embeddings of texts and of a query"):
        embedding = OpenAILikeEmbedding(
            model_name=p.model, api_base=p.v1, api_key="none", max_retries=0
        )
        one, other = embedding.get_text_embedding_batch(["a lamp", "the sea"])
        assert len(one) == len(other) == len(embedding.get_query_embedding("a lamp")) > 0
        assert one != other


def dspy(p):
    import dspy
    from dspy.utils.exceptions import AdapterParseError

    class Who(dspy.Signature):
        """Who is meant?"""

        text: str = dspy.InputField()
        person: Person = dspy.OutputField()

    for kind in ["chat", "text", "responses"]:
        with p.check(f"dspy: a prompt by model_type {kind}"):
            lm = dspy.LM(
                f"openai/{p.model}", api_base=p.v1, api_key="none", cache=False, model_type=kind,
                max_tokens=30, num_retries=0,
            )
            assert lm(QUESTION), lm.history[-1]
    lm = dspy.LM(f"openai/{p.model}", api_base=p.v1, api_key="none", cache=False, num_retries=0)
    for adapter in [dspy.ChatAdapter(), dspy.JSONAdapter()]:
        with p.check(f"dspy: a typed signature by {type(adapter).__name__}"), dspy.context(
            lm=lm, adapter=adapter
        ):
            try:
                answer = dspy.Predict(Who)(text=QUESTION)
            except AdapterParseError as error:
                # Where dspy asks in words alone, the toy model needn't obey.
                print(f"  parsed in vain: {str(error).splitlines()[0]}")
            else:
                assert isinstance(answer.person, Person), answer
    with p.check("dspy: embeddings"):
        embedder = dspy.Embedder(f"openai/{p.model}", api_base=p.v1, api_key="none", caching=False)
        assert embedder(["a lamp", "the sea"]).shape[0] == 2


def outlines(p):
    import openai
    import outlines
    from outlines.types import CFG, Regex

    client = openai.OpenAI(base_url=p.v1, api_key="none", max_retries=0)
    chat, vllm = outlines.from_openai(client, p.model), outlines.from_vllm(client, p.model)
    with p.check("outlines: text and its stream by the OpenAI backend"):
        assert chat(QUESTION, max_tokens=20)
        assert "".join(chat.stream(QUESTION, max_tokens=20))
    with p.check("outlines: an object by the OpenAI backend"):
        Person.model_validate_json(chat(QUESTION, Person))
    with p.check("outlines: an object by the vLLM backend"):
        Person.model_validate_json(vllm(QUESTION, Person))
    with p.check("outlines: a pattern by the vLLM backend"):
        text = vllm(QUESTION, Regex(r"[0-9]{2} years"))
        assert text[:2].isdigit() and text[2:] == " years", text
    with p.check("outlines: a choice by the vLLM backend"):
        assert vllm(QUESTION, Literal["Oslo", "Rome"]) in ("Oslo", "Rome")
    with p.check("outlines: a grammar by the vLLM backend"):
        text = vllm(QUESTION, CFG('start: "(" NUMBER ")"\nNUMBER: /[0-9]{3}/'))
        assert text[0] == "(" and text[-1] == ")" and text[1:-1].isdigit(), text


def guidance(p):
    from guidance import assistant, gen, json as gen_json, select, user
    from guidance.models import OpenAI
    from guidance.models.experimental import VLLMModel

    fields = dict(base_url=p.v1, api_key="none", echo=False)
    for name, make in {"OpenAI": OpenAI, "VLLMModel": VLLMModel}.items():
        with p.check(f"guidance, {name}: free text"):
            model = make(p.model, **fields)
            with user():
                model += QUESTION
            with assistant():
                model += gen("text", max_tokens=20)
            assert model["text"], str(model)
    with p.check("guidance, OpenAI: an object by a schema"):
        with user():
            model = OpenAI(p.model, **fields) + QUESTION
        with assistant():
            model += gen_json("person", schema=Person)
        Person.model_validate_json(model["person"])
    forms = {
        "a choice": (select(["Oslo", "Rome"], name="out"), lambda text: text in ("Oslo", "Rome")),
        "a pattern": (gen("out", regex="[0-9]{3}"), lambda text: len(text) == 3 and text.isdigit()),
        "an object": (gen_json("out", schema=Person), Person.model_validate_json),
    }
    for what, (grammar, holds) in forms.items():
        with p.check(f"guidance, VLLMModel: {what}"):
            with user():
                model = VLLMModel(p.model, **fields) + QUESTION
            with assistant():
                model += grammar
            assert holds(model["out"]), str(model)
            asked = p.last("/v1/chat/completions")
            assert asked["structured_outputs"]["grammar"] == asked["guided_grammar"], asked
