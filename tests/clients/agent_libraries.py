"""Libraries that run tools in a loop. Sections of `programs.py`; see there."""

import asyncio

from asked import QUESTION, A, B, Person, add


def langgraph(p):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    chat = ChatOpenAI(model=p.model, base_url=p.v1, api_key="none", max_retries=0)
    tools = [tool(add)]

    # A toy model is told when to call the tool and when to answer.
    def choose(state, _):
        begun = any(message.type == "tool" for message in state["messages"])
        return chat.bind_tools(tools, tool_choice="none" if begun else "add")

    with p.check("langgraph: an agent calls its tool and answers"):
        agent = create_react_agent(choose, tools)
        messages = agent.invoke({"messages": [("user", QUESTION)]})["messages"]
        assert [m.type for m in messages] == ["human", "ai", "tool", "ai"], messages
        assert messages[2].content in map(str, range(5, 9)), messages
    with p.check("langgraph: the agent's stream has tokens and ends"):
        agent = create_react_agent(choose, tools)
        parts = list(agent.stream({"messages": [("user", QUESTION)]}, stream_mode="messages"))
        assert len(parts) > 3
    with p.check("langgraph: an agent as it comes, which may call the tool or not"):
        answer = create_react_agent(chat, tools).invoke({"messages": [("user", QUESTION)]})
        assert answer["messages"][-1].type == "ai"


def smolagents(p):
    from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel(p.model, api_base=p.v1, api_key="none", max_tokens=300)
    with p.check("smolagents: a tool calling agent makes calls that parse, and ends"):
        agent = ToolCallingAgent(tools=[tool(add)], model=model, max_steps=2, verbosity_level=0)
        agent.run(QUESTION)
        steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
        assert steps, [getattr(step, "error", None) for step in agent.memory.steps]
        assert all(call.name in ("add", "final_answer") for s in steps for call in s.tool_calls)
    for structured in [False, True]:
        with p.check(f"smolagents: a code agent ends, structured output {structured}"):
            agent = CodeAgent(
                tools=[], model=model, max_steps=1, verbosity_level=0,
                use_structured_outputs_internally=structured,
            )
            agent.run(QUESTION)
            assert agent.memory.steps[1].model_output, agent.memory.steps[1]


def anthropic_tool_runner(p):
    import anthropic

    client = anthropic.Anthropic(base_url=p.root, api_key="none", max_retries=0)
    called = []

    @anthropic.beta_tool
    def add_numbers(a: A, b: B) -> str:
        """Adds two numbers."""
        called.append((a, b))
        return str(add(a, b))

    fields = dict(
        model=p.model, max_tokens=1024, tools=[add_numbers], max_iterations=2,
        messages=[{"role": "user", "content": QUESTION}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    with p.check("tool runner: calls the tool and sends its result"):
        messages = list(client.beta.messages.tool_runner(**fields))
        assert len(messages) == 2 and called, messages
        last = p.last("/v1/messages")["messages"][-1]
        assert last["content"][0]["type"] == "tool_result", last
    with p.check("tool runner: the same as a stream"):
        called.clear()
        for stream in client.beta.messages.tool_runner(**fields, stream=True):
            for _ in stream:
                pass
        assert called
    with p.check("tool runner: without a tool_choice it ends with an answer"):
        free = {k: v for k, v in fields.items() if k not in ("tool_choice", "max_iterations")}
        final = client.beta.messages.tool_runner(**free, max_iterations=4).until_done()
        assert final.stop_reason in ("end_turn", "max_tokens", "tool_use"), final
    # Threads that the server holds may be refused in these words; then it goes on without them.
    p.expected += [one for one in p.recorder.refused() if b"thread_unsupported_request" in one.answer]
    with p.check("tool runner: an object as its output format"):
        answer = client.beta.messages.parse(
            model=p.model, max_tokens=1024, messages=fields["messages"], output_format=Person
        )
        assert isinstance(answer.parsed_output, Person), answer


def openai_agents(p):
    import agents
    import openai

    agents.set_tracing_disabled(True)

    # A client's connections belong to one event loop.
    async def run():
        async with openai.AsyncOpenAI(base_url=p.v1, api_key="none", max_retries=0) as client:
            for name, kind in {
                "chat": agents.OpenAIChatCompletionsModel,
                "responses": agents.OpenAIResponsesModel,
            }.items():
                await _openai_agents_model(p, f"openai-agents, {name}", kind(p.model, client))

    asyncio.run(run())


async def _openai_agents_model(p, name: str, model):
    import agents

    run = agents.Runner.run
    required = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False)
    with p.check(f"{name}: text, and its stream"):
        agent = agents.Agent(name="teller", model=model)
        assert (await run(agent, QUESTION)).final_output
        result = agents.Runner.run_streamed(agent, QUESTION)
        events = [event.type async for event in result.stream_events()]
        assert result.final_output and "raw_response_event" in events, events
    with p.check(f"{name}: an object"):
        agent = agents.Agent(name="clerk", model=model, output_type=Person)
        assert isinstance((await run(agent, QUESTION)).final_output, Person)
    with p.check(f"{name}: a tool is called, its result goes back"):
        agent = agents.Agent(
            name="adder", model=model, model_settings=required, tools=[agents.function_tool(add)]
        )
        items = (await run(agent, QUESTION, max_turns=8)).new_items
        outputs = [item.output for item in items if item.type == "tool_call_output_item"]
        assert outputs and all(int(output) in range(5, 9) for output in outputs), outputs
    with p.check(f"{name}: a handoff"):
        other = agents.Agent(name="Other", model=model, handoff_description="Knows Ada.")
        agent = agents.Agent(name="first", model=model, model_settings=required, handoffs=[other])
        result = await run(agent, QUESTION)
        assert result.last_agent is other and result.final_output, result
