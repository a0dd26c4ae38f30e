package scene

// Frame is one frame as the render server knows it. Times are mach continuous ticks; 0 is none or unknown unless said otherwise.
type Frame struct {
	DisplayID int64
	FrameSeed int64 // the update seed, 32 bits
	SwapID    int64 // 32 bits
	SurfaceID int64

	Begin, End int64
	Previous   int64 // end of the frame before on this display
	Refresh    int64 // refresh interval in ticks
	Buffers    int64
	Skip       int64 // skip_request, 0 or 1
	Stalled    bool  // told under the .Stalls category: the lifetime is longer than the buffers allow

	DisplayTarget int64 // when the frame was asked to be shown
	Input         int64 // when the touch it answers arrived

	Base                     int64 // what FrameUpdate counts offsets from: Begin or a little before it
	RenderBegin, RenderEnd   int64
	GPUBegin, GPUEnd         int64
	ProcessBegin, ProcessEnd int64
	Ready                    int64
	Reasons                  uint32 // render reasons
	Counter                  uint32 // stands for the counters that share words with other values
	Thread                   int64  // thread id of the render server

	Contributors []Contributor
}

// Contributor is a process with content in a frame.
type Contributor struct {
	PID            int64
	Name           string
	EarliestCommit int64
	Previous       int64 // end of the last frame it had content in
	Target         int64
}

// Process is a running process.
type Process struct {
	PID        int64
	Name, Path string
	Bundle     string // "" for what is no app
	Foreground bool
}

// Event is one thing that the phone's log system sees. Exactly one of Frame and Foreign is set. All of it belongs to the Device and
// is valid only until the function that got it returns.
type Event struct {
	Boot    int   // which life of the phone: 1, 2 …
	Mach    int64 // when it was emitted, mach continuous ticks
	Frame   *Frame
	Foreign *Foreign
	// Server is the render server's process, which emits the frames.
	Server *Process
}

// Foreign is a signpost or log line that is no frame.
type Foreign struct {
	Source     *Source
	Process    *Process
	Thread     int64
	Type       string // Begin, End or Event; of a log line Default or Error
	Identifier uint64
	Args       []Arg // as the format of Source has them
}

// Arg is one argument's value: Text or Bytes where the format wants text or data, else Num.
type Arg struct {
	Num   uint64
	Text  string
	Bytes []byte
}

// Source is a place in a program that emits signposts or log lines.
type Source struct {
	Log                 bool // os-log, else os-signpost
	Subsystem, Category string
	Name                string
	Format              string // in os_log's format language; "" has no message
	ArgRows             bool   // each argument follows as a row of its own in the -arg table
	Backtrace           bool
}
