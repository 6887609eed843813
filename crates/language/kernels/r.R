# The R context kernel (R 4 or later): runs cells, keeps their state, reports what they produced.
# README.md beside this file is the protocol. One process is one context.
#
# R opens no descriptor by its number. Two children, `cat`, carry frames between the control descriptor and pipes.
#
# User code shares this process and can do anything to it. The only promise is that nothing it prints is taken for a frame.

local({
  protocol <- 1L
  max_frame <- 1048576
  max_message <- 134217728
  options(warn = 1, keep.source = TRUE, width = 120, device = NULL)

  variable <- function(name) {
    value <- Sys.getenv(name, NA)
    Sys.unsetenv(name)
    value
  }
  if (!is.na(variable("SANDSTORM_KERNEL_NONCE"))) {
    message("the kernel of R needs a descriptor of its own")
    quit("no", 2)
  }
  both <- variable("SANDSTORM_KERNEL_FD")
  read_from <- variable("SANDSTORM_KERNEL_IN")
  write_to <- variable("SANDSTORM_KERNEL_OUT")
  if (is.na(read_from)) read_from <- both
  if (is.na(write_to)) write_to <- both
  if (!grepl("^[0-9]+$", read_from) || !grepl("^[0-9]+$", write_to)) {
    message("this is the kernel of a context: it needs SANDSTORM_KERNEL_FD, or SANDSTORM_KERNEL_IN and _OUT")
    quit("no", 2)
  }
  # An interrupt of the whole group is not for them, and they end with this process where the machine can see to it.
  carry <- function(before, descriptor) {
    with <- "with=; command -v setpriv >/dev/null && with='setpriv --pdeathsig KILL'"
    command <- sprintf("trap '' INT; %s; %sexec $with cat %s 2>/dev/null", with, before, descriptor)
    # A plain shell knows descriptors of one digit.
    if (grepl("&[0-9]$", descriptor)) command else paste("exec bash -c", shQuote(command))
  }
  input <- pipe(carry("printf %08d $$; ", paste0("<&", read_from)), "rb")
  feeder <- as.integer(rawToChar(readBin(input, "raw", 8L)))
  output <- pipe(carry("", paste0(">&", write_to)), "wb")

  # Frames

  # Ends the context, not the cell.
  end_process <- base::quit
  leave <- function(status) {
    force(status)
    try(close(output), silent = TRUE)
    # R waits for it, and it for the controller.
    tools::pskill(feeder, tools::SIGKILL)
    end_process("no", status, FALSE)
  }
  fail <- function(reason) {
    message("kernel: ", reason)
    leave(70)
  }
  number <- function(bytes) sum(as.integer(bytes) * 256^(0:3))
  read_exactly <- function(size) {
    pieces <- list()
    while (size > 0) {
      piece <- readBin(input, "raw", size)
      if (!length(piece)) return(NULL)
      pieces[[length(pieces) + 1L]] <- piece
      size <- size - length(piece)
    }
    if (length(pieces)) do.call(c, pieces) else raw()
  }
  # The next message, or NULL when the controller has gone.
  receive <- function() {
    body <- list()
    total <- 0
    repeat {
      header <- read_exactly(4L)
      if (is.null(header)) return(NULL)
      word <- number(header)
      size <- word %% 2147483648
      total <- total + size
      if (size > max_frame || total > max_message) fail("frame or message over its maximum")
      piece <- read_exactly(size)
      if (is.null(piece)) return(NULL)
      body[[length(body) + 1L]] <- piece
      if (word < 2147483648) break
    }
    text <- rawToChar(do.call(c, body))
    Encoding(text) <- "UTF-8"
    text
  }
  send <- function(text) {
    body <- charToRaw(text)
    starts <- seq(1, length(body), max_frame)
    for (start in starts) {
      piece <- body[start:min(length(body), start + max_frame - 1)]
      more <- if (start + max_frame <= length(body)) 128 else 0
      size <- length(piece)
      writeBin(c(as.raw(c(size %% 256, size %/% 256 %% 256, size %/% 65536, more)), piece), output)
    }
    flush(output)
  }

  # JSON

  escapes <- c(n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", "/" = "/", "\\" = "\\", "\"" = "\"")
  unescape <- function(found) {
    code <- strtoi(substr(found, 3, 6), 16L)
    if (nchar(found) == 12) {
      code <- 65536 + (code - 55296) * 1024 + strtoi(substr(found, 9, 12), 16L) - 56320
    }
    # R's texts hold no NUL, and no half of a pair.
    if (code == 0) "" else if (code >= 55296 && code <= 57343) "\ufffd" else intToUtf8(code)
  }
  decode <- function(quoted) {
    text <- substr(quoted, 2, nchar(quoted) - 1)
    if (!grepl("\\", text, fixed = TRUE)) return(text)
    found <- gregexpr("\\\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", text, perl = TRUE)
    regmatches(text, found) <- lapply(regmatches(text, found), function(all) {
      different <- unique(all)
      meant <- vapply(different, function(one) {
        if (substr(one, 2, 2) == "u") unescape(one) else escapes[[substr(one, 2, 2)]]
      }, "")
      meant[match(all, different)]
    })
    text
  }
  # The fields of a flat object.
  parse_message <- function(text) {
    tokens <- regmatches(text, gregexpr("\"(?:[^\"\\\\]++|\\\\.)*+\"|[^\\s,:{}\"]++", text, perl = TRUE))[[1]]
    if (!grepl("^\\s*\\{", text) || length(tokens) %% 2) fail("message is not an object")
    fields <- as.list(tokens[c(FALSE, TRUE)])
    names(fields) <- vapply(tokens[c(TRUE, FALSE)], decode, "")
    fields
  }
  quoted <- function(text) {
    text <- enc2utf8(as.character(text))
    if (!validUTF8(text)) text <- iconv(text, "UTF-8", "UTF-8", sub = "byte")
    text <- gsub("\\", "\\\\", text, fixed = TRUE)
    text <- gsub("\"", "\\\"", text, fixed = TRUE)
    if (grepl("[\x01-\x1f]", text, useBytes = TRUE)) {
      text <- gsub("\n", "\\n", text, fixed = TRUE)
      for (code in setdiff(1:31, 10)) {
        text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
      }
    }
    paste0("\"", text, "\"")
  }
  object <- function(fields) {
    paste0("{", paste0(vapply(names(fields), quoted, ""), ":", unlist(fields), collapse = ","), "}")
  }
  base64 <- function(bytes) {
    alphabet <- c(LETTERS, letters, 0:9, "+", "/")
    padding <- (3 - length(bytes) %% 3) %% 3
    three <- matrix(as.integer(c(bytes, raw(padding))), 3)
    six <- rbind(
      three[1, ] %/% 4, three[1, ] %% 4 * 16 + three[2, ] %/% 16,
      three[2, ] %% 16 * 4 + three[3, ] %/% 64, three[3, ] %% 64
    )
    text <- alphabet[six + 1]
    if (padding) text[length(text) - seq_len(padding) + 1] <- "="
    paste(text, collapse = "")
  }

  # Cells

  current <- "null"
  count <- 0L
  held <- NULL
  say <- function(type, ...) {
    text <- object(list(type = quoted(type), id = current, ...))
    if (nchar(text, "bytes") > max_message) {
      note <- quoted(over_maximum(nchar(text, "bytes")))
      over <- list(data = object(list("text/plain" = note)), metadata = "{\"truncated\":true}")
      text <- object(c(list(type = quoted(type), id = current), over))
    }
    flush(stdout())
    flush(stderr())
    if (!is.null(held)) send(held)
    held <<- NULL
    send(text)
  }
  show_data <- function(type, data) {
    say(type, data = object(data), metadata = if (is.null(attr(data, "truncated"))) "{}" else "{\"truncated\":true}")
  }
  over_maximum <- function(size) sprintf("<%.0f bytes: over the maximum of %.0f>", size, max_message)
  # What R prints of a value, and what it offers to notebooks.
  rich <- function(value) {
    printed <- utils::capture.output(if (isS4(value)) methods::show(value) else print(value))
    size <- sum(nchar(printed, "bytes"))
    if (size > max_message) return(structure(list("text/plain" = quoted(over_maximum(size))), truncated = TRUE))
    data <- list("text/plain" = quoted(paste(printed, collapse = "\n")))
    if (inherits(value, c("html", "shiny.tag", "shiny.tag.list"))) {
      data[["text/html"]] <- quoted(paste(as.character(value), collapse = "\n"))
    } else if (is.data.frame(value)) {
      data[["text/html"]] <- quoted(table_of(value))
    }
    data
  }
  table_of <- function(frame) {
    plain <- function(text) gsub(">", "&gt;", gsub("<", "&lt;", gsub("&", "&amp;", text, fixed = TRUE), fixed = TRUE), fixed = TRUE)
    shown <- utils::head(frame, 60)
    cells <- vapply(shown, function(column) plain(trimws(format(column))), character(nrow(shown)))
    cells <- matrix(cells, nrow(shown))
    row <- function(of, tag) paste0("<tr>", paste0("<", tag, ">", of, "</", tag, ">", collapse = ""), "</tr>")
    body <- vapply(seq_len(nrow(cells)), function(at) row(c(plain(rownames(shown)[at]), cells[at, ]), "td"), "")
    paste0("<table>\n", row(c("", plain(names(shown))), "th"), "\n", paste(body, collapse = "\n"), "\n</table>")
  }

  # Pictures of a cell are pages of a device that writes PNG.
  pictures <- NULL
  open_pictures <- function(...) {
    pictures <<- tempfile("pictures")
    dir.create(pictures)
    grDevices::png(file.path(pictures, "%06d.png"), 1050, 750, res = 150, type = "cairo")
  }
  show_pictures <- function() {
    if (is.null(pictures)) return()
    folder <- pictures
    pictures <<- NULL
    grDevices::graphics.off()
    for (file in sort(list.files(folder, full.names = TRUE))) {
      bytes <- readBin(file, "raw", file.size(file))
      if (length(bytes)) show_data("display", list("text/plain" = quoted("<plot>"), "image/png" = quoted(base64(bytes))))
    }
    unlink(folder, recursive = TRUE)
  }
  if (requireNamespace("grDevices", quietly = TRUE) && capabilities("cairo")) options(device = open_pictures)

  # Shows a value, or data of a type that it is already in.
  display <- function(value, mime = NULL) {
    suspendInterrupts({
      if (is.null(mime)) {
        data <- allowInterrupts(rich(value))
      } else {
        if (is.raw(value)) value <- base64(value)
        json <- mime == "application/json" || grepl("+json", mime, fixed = TRUE)
        data <- list("text/plain" = quoted(paste0("<", mime, ">")))
        data[[mime]] <- if (json) as.character(value) else quoted(paste(value, collapse = "\n"))
      }
      show_data("display", data)
    })
    invisible()
  }
  # Ends the cell, not the context.
  leave_cell <- function(save = "default", status = 0, runLast = TRUE) {
    stop(structure(
      class = c("SystemExit", "error", "condition"),
      list(message = as.character(status), call = NULL, status = as.integer(status))
    ))
  }
  tools <- new.env()
  tools$display <- display
  attach(tools, name = "sandstorm", warn.conflicts = FALSE)
  for (name in c("quit", "q")) {
    unlockBinding(name, baseenv())
    assign(name, leave_cell, baseenv())
    lockBinding(name, baseenv())
  }
  unlockBinding(".Last.value", baseenv())
  # Without the frames below the cell, and those of the handler.
  frames_of_user <- function(calls) {
    called <- function(call) if (is.name(call[[1]])) as.character(call[[1]]) else ""
    names <- vapply(calls, called, "")
    begin <- which(names == "run_expression")
    if (!length(begin)) return(list())
    handler <- which(names %in% c(".handleSimpleError", "h") | !vapply(calls, function(call) is.name(call[[1]]) || is.call(call[[1]]) && called(call[[1]]) != "function", NA))
    kept <- setdiff(seq_along(calls), c(seq_len(max(begin) + 3L), handler))
    calls[kept]
  }
  describe <- function(error, calls) {
    if (inherits(error, "SystemExit")) {
      return(list(name = "SystemExit", value = error$message, traceback = character(), exit_code = error$status))
    }
    value <- paste(conditionMessage(error), collapse = "\n")
    if (inherits(error, "sandstorm_syntax")) {
      return(list(name = "SyntaxError", value = value, traceback = strsplit(value, "\n")[[1]]))
    }
    call <- conditionCall(error)
    where <- if (is.null(call) || identical(call, quote(eval(expression, globalenv())))) "Error: " else paste0("Error in ", deparse(call, 60)[1], " : ")
    lines <- vapply(calls, function(call) deparse(call, 60)[1], "")
    traced <- if (length(lines)) c("Traceback:", paste0(seq_along(lines), ". ", lines)) else character()
    list(name = class(error)[1], value = value, traceback = c(paste0(where, value), traced))
  }
  run_expression <- function(expression, silent, last) {
    found <- withVisible(eval(expression, globalenv()))
    if (silent) return()
    .Last.value <<- found$value
    if (!found$visible) return()
    data <- rich(found$value)
    suspendInterrupts(show_data(if (last) "result" else "display", data))
  }
  run_code <- function(code, silent) {
    name <- if (silent) "<cell>" else sprintf("<cell %d>", count)
    lines <- strsplit(code, "\r?\n")[[1]]
    expressions <- tryCatch(
      parse(text = lines, srcfile = srcfilecopy(name, lines), keep.source = TRUE),
      error = function(error) stop(structure(error, class = c("sandstorm_syntax", class(error))))
    )
    for (at in seq_along(expressions)) run_expression(expressions[at], silent, at == length(expressions))
  }
  run_cell <- function(code, silent) {
    calls <- list()
    problem <- NULL
    status <- tryCatch(
      {
        allowInterrupts(withCallingHandlers(run_code(code, silent), error = function(error) calls <<- sys.calls()))
        "ok"
      },
      error = function(error) {
        problem <<- describe(error, frames_of_user(calls))
        "error"
      },
      interrupt = function(condition) {
        problem <<- list(name = "Interrupted", value = "the cell was interrupted", traceback = "Interrupted: the cell was interrupted")
        "interrupted"
      }
    )
    while (sink.number()) sink()
    try(show_pictures(), silent = TRUE)
    if (!is.null(problem)) {
      lines <- paste0("[", paste(vapply(problem$traceback, quoted, ""), collapse = ","), "]")
      fields <- list(name = quoted(problem$name), value = quoted(problem$value), traceback = lines)
      if (!is.null(problem$exit_code)) fields$exit_code <- problem$exit_code
      do.call(say, c(list("error"), fields))
    }
    say("done", status = quoted(status), execution_count = count)
  }
  serve <- function() {
    version <- paste(R.version$major, R.version$minor, sep = ".")
    send(object(list(type = "\"ready\"", protocol = protocol, language = "\"r\"", version = quoted(version))))
    repeat {
      text <- receive()
      if (is.null(text)) break
      message <- parse_message(text)
      if (identical(message$type, "\"shutdown\"")) break
      if (!identical(message$type, "\"execute\"") || !startsWith(message$code %||% "", "\"")) fail("unknown message")
      silent <- identical(message$silent, "true")
      current <<- message$id %||% "null"
      if (!silent) count <<- count + 1L
      # One that came while no cell ran is not for this one.
      tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL)
      held <<- object(list(type = "\"start\"", id = current, execution_count = count))
      if (!identical(message$late_start, "true")) {
        send(held)
        held <<- NULL
      }
      run_cell(decode(message$code), silent)
    }
    0
  }
  `%||%` <- function(left, right) if (is.null(left)) right else left
  leave(suspendInterrupts(serve()))
})
