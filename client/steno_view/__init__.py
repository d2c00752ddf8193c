"""A viewer of sessions in the browser: a process of its own, a client like any other.

server      the process: sockets, signals, the printed address
app         the routes of the page and of its API
guard       checks of each request, and the headers of each answer
one_time_token  the token of a printed address, which opens the viewer once
watches     sessions that pages follow, each with one subscription
pulse       the daemon's state, asked for by one task for all pages
dashboard   what runs now and what ran today, by project and program
origins     where the sessions in sight come from
spending    tokens and cost of sessions, read in a thread
feed        the server-sent events of one page
queries     what the API reads through the client
changes     what the API changes through the client, with `--write`
rows        records as rows of the page; pure
markup      Markdown and code as trees of elements; pure
outline     checkpoints and token counts of a session; pure
turns       the events of a wire file by turn; pure
compare     the differences of two states; pure
export      what a page shows as Markdown, HTML or JSON
document    a session as one HTML file; pure
limits      the bounds
static      the page: HTML, CSS and JavaScript modules without a build step
"""
